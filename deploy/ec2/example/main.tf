# Two instances behind an internal ALB. Every id, name and hash here is to be replaced by yours.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region
}

variable "region" {
  description = "Where everything is."
  type        = string
}

variable "package_sha256" {
  description = "From SHA256SUMS beside the package."
  type        = string
}

module "vedette" {
  source = "../"

  vpc_id       = "vpc-0123456789abcdef0"
  subnet_ids   = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  camera_cidrs = ["10.20.0.0/16"]

  # By measurement, not by this example.
  instance_type = "c7i.xlarge"

  package_url    = "s3://BUCKET/vedette_0.1.0-1_amd64.deb"
  package_sha256 = var.package_sha256

  balancer             = "alb"
  certificate_arn      = "arn:aws:acm:eu-central-1:123456789012:certificate/00000000-0000-0000-0000-000000000000"
  idle_timeout_seconds = 120
  instances            = 2
}

output "camera_address" {
  description = "For the cameras' configuration."
  value       = module.vedette.camera_address
}
