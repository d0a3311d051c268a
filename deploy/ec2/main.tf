# One instance, or a group of them behind a balancer (balancer.tf), from one launch template.

locals {
  grouped  = var.balancer != "none"
  settings = var.settings != "" ? var.settings : file("${path.module}/../systemd/vedette.toml")

  user_data = templatefile("${path.module}/user-data.yaml.tftpl", {
    fetch          = base64gzip(file("${path.module}/fetch.py"))
    settings       = base64encode(local.settings)
    package_url    = var.package_url
    package_sha256 = var.package_sha256
    secrets        = var.secret_arns
  })

  everywhere = anytrue([for cidr in var.camera_cidrs : endswith(cidr, "/0")])
  s3_object  = startswith(var.package_url, "s3://") ? trimprefix(var.package_url, "s3://") : ""
  tags       = merge(var.tags, { Name = var.name })
}

data "aws_partition" "this" {}

data "aws_ssm_parameter" "ubuntu" {
  count = var.ami_id == "" ? 1 : 0
  name  = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
}

resource "aws_launch_template" "this" {
  name_prefix            = "${var.name}-"
  image_id               = var.ami_id != "" ? var.ami_id : data.aws_ssm_parameter.ubuntu[0].insecure_value
  instance_type          = var.instance_type
  user_data              = base64encode(local.user_data)
  update_default_version = true
  vpc_security_group_ids = [aws_security_group.instance.id]
  tags                   = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.this.arn
  }

  # Version 2 only, and one hop: what runs in a container on the instance does not get the role.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  dynamic "cpu_options" {
    for_each = var.threads_per_core == 0 ? [] : [var.threads_per_core]
    content {
      core_count       = var.core_count
      threads_per_core = cpu_options.value
    }
  }

  block_device_mappings {
    device_name = var.root_device_name
    ebs {
      volume_size           = var.root_volume_gb
      volume_type           = "gp3"
      encrypted             = true
      kms_key_id            = var.kms_key_arn != "" ? var.kms_key_arn : null
      delete_on_termination = true
    }
  }

  monitoring {
    enabled = true
  }

  tag_specifications {
    resource_type = "instance"
    tags          = local.tags
  }

  tag_specifications {
    resource_type = "volume"
    tags          = local.tags
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = var.open_to_the_internet || !local.everywhere
      error_message = "camera_cidrs holds the whole internet; narrow it, or set open_to_the_internet and TLS with tokens."
    }
    precondition {
      condition     = length(local.user_data) < 16384
      error_message = "The user data is larger than EC2 takes; shorten settings."
    }
    precondition {
      condition     = (var.threads_per_core == 0) == (var.core_count == 0)
      error_message = "threads_per_core and core_count go together."
    }
  }
}

resource "aws_instance" "this" {
  count     = local.grouped ? 0 : 1
  subnet_id = var.subnet_ids[0]
  tags      = local.tags

  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }

  lifecycle {
    # A new package or new settings are a new launch template, and user data is read at the first start only.
    replace_triggered_by = [aws_launch_template.this.latest_version]
  }
}
