variable "name" {
  description = "Prefix of everything that is made, and the instances' Name tag."
  type        = string
  default     = "vedette"

  validation {
    # A load balancer's name has at most 32 characters, a target group's too, and a suffix is added.
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name: 3 to 24 characters of a-z, 0-9 and -, beginning with a letter."
  }
}

variable "vpc_id" {
  description = "VPC that everything is in."
  type        = string

  validation {
    condition     = can(regex("^vpc-[0-9a-f]+$", var.vpc_id))
    error_message = "vpc_id: the id of a VPC, vpc-..."
  }
}

variable "subnet_ids" {
  description = "Subnets of the instances. One is enough without a balancer; give one in each zone with it. They need a way to the package (NAT gateway, or endpoints for S3, SSM and Secrets Manager)."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) > 0 && alltrue([for id in var.subnet_ids : can(regex("^subnet-[0-9a-f]+$", id))])
    error_message = "subnet_ids: at least one subnet-..."
  }
}

variable "camera_cidrs" {
  description = "Networks that cameras come from. 0.0.0.0/0 is refused unless open_to_the_internet says that it is meant."
  type        = list(string)

  validation {
    condition     = length(var.camera_cidrs) > 0 && alltrue([for cidr in var.camera_cidrs : can(cidrhost(cidr, 0))])
    error_message = "camera_cidrs: at least one network such as 10.20.0.0/16."
  }
}

variable "open_to_the_internet" {
  description = "Allow 0.0.0.0/0 or ::/0 in camera_cidrs. Only with TLS and tokens (SECURITY.md)."
  type        = bool
  default     = false
}

variable "metrics_security_group_ids" {
  description = "Security groups of Prometheus servers that may reach the operators' port, 9464. Empty: nobody from outside the instance. Setting it takes admin_addr = \"0.0.0.0:9464\" in settings as well."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.metrics_security_group_ids : can(regex("^sg-[0-9a-f]+$", id))])
    error_message = "metrics_security_group_ids: each sg-... There is no list of networks for this port: groups cannot be as wide as 0.0.0.0/0 by mistake."
  }
}

variable "instance_type" {
  description = "Kind of instance, found by measuring (docs/deployment.md). Bursting kinds (t2, t3, t3a, t4g) are refused: a server that computes all the time has used up its credits within hours."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.instance_type)) && !can(regex("^t[0-9]", var.instance_type))
    error_message = "instance_type: a kind such as c7i.2xlarge, and none of the t family."
  }
}

variable "threads_per_core" {
  description = "1 turns hyperthreads off: half as many workers, each with a core of its own. Measure both; 0 leaves it as the kind of instance has it. Kinds without hyperthreads (Graviton, c7a and others) take only 0."
  type        = number
  default     = 0

  validation {
    condition     = contains([0, 1, 2], var.threads_per_core)
    error_message = "threads_per_core: 0, 1 or 2."
  }
}

variable "core_count" {
  description = "Cores of the instance, needed with threads_per_core = 1 or 2: half of the number of virtual CPUs on kinds with hyperthreads."
  type        = number
  default     = 0

  validation {
    condition     = var.core_count >= 0 && floor(var.core_count) == var.core_count
    error_message = "core_count: a whole number, 0 = as the kind of instance has it."
  }
}

variable "ami_id" {
  description = "Image: Debian 12 or later, Ubuntu 22.04 or later, of the package's architecture. Empty: the newest Ubuntu 24.04 for x86_64, which brings the SSM agent. Pin one in production: with the newest, a plan of another day replaces instances."
  type        = string
  default     = ""

  validation {
    condition     = var.ami_id == "" || can(regex("^ami-[0-9a-f]+$", var.ami_id))
    error_message = "ami_id: ami-..., or empty."
  }
}

variable "root_volume_gb" {
  description = "Size of the encrypted root volume. The server writes nothing; logs do."
  type        = number
  default     = 16

  validation {
    condition     = var.root_volume_gb >= 8 && var.root_volume_gb <= 1024
    error_message = "root_volume_gb: 8 to 1024."
  }
}

variable "root_device_name" {
  description = "As the image calls it: /dev/sda1 for Ubuntu, /dev/xvda for Debian."
  type        = string
  default     = "/dev/sda1"

  validation {
    condition     = can(regex("^/dev/[a-z0-9]+$", var.root_device_name))
    error_message = "root_device_name: /dev/..."
  }
}

variable "kms_key_arn" {
  description = "Key of the root volume. Empty: the account's own for EBS."
  type        = string
  default     = ""
}

variable "package_url" {
  description = "Where the .deb is: https://..., or s3://BUCKET/KEY of a bucket that the instances' role is then allowed to read that object of."
  type        = string

  validation {
    condition     = can(regex("^(https|s3)://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]+\\.deb$", var.package_url))
    error_message = "package_url: https:// or s3://, without quotes and spaces, ending in .deb."
  }
}

variable "package_sha256" {
  description = "SHA-256 of the .deb, from SHA256SUMS. Instances refuse any other content."
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.package_sha256))
    error_message = "package_sha256: 64 hexadecimal digits in lower case."
  }
}

variable "settings" {
  description = "Content of /etc/vedette/vedette.toml. Empty: deploy/systemd/vedette.toml. It is part of the user data: no secrets."
  type        = string
  default     = ""

  validation {
    condition     = length(var.settings) < 6000 && !can(regex("(?m)^\\s*secret\\s*=|PRIVATE KEY", var.settings))
    error_message = "settings: less than 6000 characters, and without secrets; those come from secret_arns."
  }
}

variable "secret_arns" {
  description = "Secrets of Secrets Manager, by the file that each becomes in /etc/vedette/tls, such as { \"server.key\" = \"arn:...\" }. Name the files in settings (tls_cert, tls_key, token_file). They are read at an instance's first start."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for name, arn in var.secret_arns :
      can(regex("^[a-z0-9][a-z0-9.-]*$", name)) && can(regex("^arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]+:secret:[A-Za-z0-9/_+=.@-]+$", arn))
    ])
    error_message = "secret_arns: file names of a-z, 0-9, . and -, each with the ARN of a secret."
  }
}

variable "balancer" {
  description = "none: one instance, cameras connect to it. alb: a group of instances behind an Application Load Balancer, which spreads streams. nlb: behind a Network Load Balancer, which spreads connections."
  type        = string
  default     = "none"

  validation {
    condition     = contains(["none", "alb", "nlb"], var.balancer)
    error_message = "balancer: none, alb or nlb."
  }
}

variable "balancer_subnet_ids" {
  description = "Subnets of the balancer, in at least two zones. Empty: those of the instances."
  type        = list(string)
  default     = []
}

variable "balancer_internal" {
  description = "Whether the balancer has private addresses only."
  type        = bool
  default     = true
}

variable "certificate_arn" {
  description = "Certificate (ACM) of the ALB's listener. An ALB takes gRPC on HTTPS listeners only."
  type        = string
  default     = ""
}

variable "nlb_readyz" {
  description = "Let the NLB ask /readyz on port 9464, which a server that drains or is stuck answers with 503, instead of only opening connections. Takes admin_addr = \"0.0.0.0:9464\" in settings; only the balancer gets in."
  type        = bool
  default     = false
}

variable "idle_timeout_seconds" {
  description = "Silence after which the ALB ends a stream. HTTP/2 PING does not count; heartbeats do. 3 x the cameras' heartbeat interval and more."
  type        = number
  default     = 120

  validation {
    condition     = var.idle_timeout_seconds >= 60 && var.idle_timeout_seconds <= 4000
    error_message = "idle_timeout_seconds: 60 to 4000, the most that an ALB takes."
  }
}

variable "deregistration_seconds" {
  description = "How long the balancer leaves streams on an instance that is taken out. They do not end by themselves: this is how long each such change takes."
  type        = number
  default     = 30

  validation {
    condition     = var.deregistration_seconds >= 0 && var.deregistration_seconds <= 3600
    error_message = "deregistration_seconds: 0 to 3600."
  }
}

variable "instances" {
  description = "Instances behind the balancer. Cameras / (cameras that one holds), rounded up, and one more that may fail."
  type        = number
  default     = 2

  validation {
    condition     = var.instances >= 1 && floor(var.instances) == var.instances
    error_message = "instances: a whole number, 1 or more."
  }
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
}
