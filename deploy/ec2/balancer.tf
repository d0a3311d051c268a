# A group of instances behind a balancer. docs/deployment.md says what is different about streams that never
# end.

locals {
  alb    = var.balancer == "alb"
  readyz = var.balancer == "nlb" && var.nlb_readyz
  # The NLB passes bytes on, so that TLS is the server's own and its port stays.
  listener_port    = local.alb ? 443 : 50051
  balancer_subnets = length(var.balancer_subnet_ids) > 0 ? var.balancer_subnet_ids : var.subnet_ids
}

resource "aws_lb" "this" {
  count              = local.grouped ? 1 : 0
  name               = "${var.name}-lb"
  load_balancer_type = local.alb ? "application" : "network"
  internal           = var.balancer_internal
  security_groups    = [aws_security_group.balancer[0].id]
  subnets            = local.balancer_subnets
  idle_timeout       = local.alb ? var.idle_timeout_seconds : null
  # A zone whose instances are all gone loses its cameras otherwise. Between zones the bytes of pictures
  # cost money on an NLB; on an ALB it is always on and not charged.
  enable_cross_zone_load_balancing = true
  drop_invalid_header_fields       = local.alb ? true : null
  tags                             = local.tags

  lifecycle {
    precondition {
      condition     = length(local.balancer_subnets) > 1
      error_message = "A balancer needs subnets in at least two zones (balancer_subnet_ids or subnet_ids)."
    }
    precondition {
      condition     = !local.alb || var.certificate_arn != ""
      error_message = "certificate_arn is missing: an ALB takes gRPC on HTTPS listeners only."
    }
  }
}

resource "aws_lb_target_group" "this" {
  count                = local.grouped ? 1 : 0
  name_prefix          = "vdt-"
  vpc_id               = var.vpc_id
  port                 = 50051
  protocol             = local.alb ? "HTTP" : "TCP"
  protocol_version     = local.alb ? "GRPC" : null
  deregistration_delay = var.deregistration_seconds
  # An NLB otherwise leaves connections to an instance that was taken out, for ever.
  connection_termination = local.alb ? null : true
  # Streams last for days: what counts is how many an instance has, not whose turn it is.
  load_balancing_algorithm_type = local.alb ? "least_outstanding_requests" : null
  tags                          = local.tags

  # ALB: 0 is OK, that the call went through. A server that is stuck or drains answers with OK too, and with
  # NOT_SERVING in the message, which an ALB does not read: README.md.
  health_check {
    protocol            = local.alb || local.readyz ? "HTTP" : "TCP"
    port                = local.readyz ? "9464" : "traffic-port"
    path                = local.alb ? "/grpc.health.v1.Health/Check" : local.readyz ? "/readyz" : null
    matcher             = local.alb ? "0" : local.readyz ? "200" : null
    interval            = 5
    timeout             = 2
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_lb_listener" "this" {
  count             = local.grouped ? 1 : 0
  load_balancer_arn = aws_lb.this[0].arn
  port              = local.listener_port
  protocol          = local.alb ? "HTTPS" : "TCP"
  certificate_arn   = local.alb ? var.certificate_arn : null
  ssl_policy        = local.alb ? "ELBSecurityPolicy-TLS13-1-2-2021-06" : null
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this[0].arn
  }
}

resource "aws_autoscaling_group" "this" {
  count               = local.grouped ? 1 : 0
  name_prefix         = "${var.name}-"
  vpc_zone_identifier = var.subnet_ids
  desired_capacity    = var.instances
  min_size            = var.instances
  # Room for the one that comes before the one that goes.
  max_size          = var.instances + 1
  target_group_arns = [aws_lb_target_group.this[0].arn]
  health_check_type = "ELB"
  # Package and network: a minute or two.
  health_check_grace_period = 300
  wait_for_capacity_timeout = "15m"

  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }

  # A new package or new settings replace instances one by one, the new one first.
  instance_refresh {
    strategy = "Rolling"
    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 150
      instance_warmup        = 60
      auto_rollback          = true
    }
  }

  dynamic "tag" {
    for_each = local.tags
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }
}
