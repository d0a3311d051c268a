# Who reaches what. There is no port for ssh: shells come through SSM.

resource "aws_security_group" "instance" {
  name_prefix = "${var.name}-"
  description = "Vedette: cameras in, metrics for the collector alone"
  vpc_id      = var.vpc_id
  tags        = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

# With a balancer, only what comes through it.
resource "aws_vpc_security_group_ingress_rule" "cameras" {
  for_each          = local.grouped ? toset([]) : toset(var.camera_cidrs)
  security_group_id = aws_security_group.instance.id
  description       = "Cameras"
  cidr_ipv4         = strcontains(each.value, ":") ? null : each.value
  cidr_ipv6         = strcontains(each.value, ":") ? each.value : null
  ip_protocol       = "tcp"
  from_port         = 50051
  to_port           = 50051
}

# The balancer's streams and its health checks.
resource "aws_vpc_security_group_ingress_rule" "balancer" {
  count                        = local.grouped ? 1 : 0
  security_group_id            = aws_security_group.instance.id
  description                  = "The balancer"
  referenced_security_group_id = aws_security_group.balancer[0].id
  ip_protocol                  = "tcp"
  from_port                    = 50051
  to_port                      = 50051
}

resource "aws_vpc_security_group_ingress_rule" "readyz" {
  count                        = local.readyz ? 1 : 0
  security_group_id            = aws_security_group.instance.id
  description                  = "The balancer's health checks"
  referenced_security_group_id = aws_security_group.balancer[0].id
  ip_protocol                  = "tcp"
  from_port                    = 9464
  to_port                      = 9464
}

resource "aws_vpc_security_group_ingress_rule" "metrics" {
  for_each                     = toset(var.metrics_security_group_ids)
  security_group_id            = aws_security_group.instance.id
  description                  = "Collectors of metrics"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 9464
  to_port                      = 9464
}

# Packages, SSM and secrets are all HTTPS; apt's mirrors inside AWS are HTTP.
resource "aws_vpc_security_group_egress_rule" "web" {
  for_each          = toset(["80", "443"])
  security_group_id = aws_security_group.instance.id
  description       = "Packages, SSM, secrets"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.value)
  to_port           = tonumber(each.value)
}

resource "aws_security_group" "balancer" {
  count       = local.grouped ? 1 : 0
  name_prefix = "${var.name}-lb-"
  description = "Vedette: the balancer"
  vpc_id      = var.vpc_id
  tags        = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "balancer_cameras" {
  for_each          = local.grouped ? toset(var.camera_cidrs) : toset([])
  security_group_id = aws_security_group.balancer[0].id
  description       = "Cameras"
  cidr_ipv4         = strcontains(each.value, ":") ? null : each.value
  cidr_ipv6         = strcontains(each.value, ":") ? each.value : null
  ip_protocol       = "tcp"
  from_port         = local.listener_port
  to_port           = local.listener_port
}

resource "aws_vpc_security_group_egress_rule" "balancer_instances" {
  count                        = local.grouped ? 1 : 0
  security_group_id            = aws_security_group.balancer[0].id
  description                  = "The instances"
  referenced_security_group_id = aws_security_group.instance.id
  ip_protocol                  = "tcp"
  from_port                    = 50051
  to_port                      = 50051
}

resource "aws_vpc_security_group_egress_rule" "balancer_readyz" {
  count                        = local.readyz ? 1 : 0
  security_group_id            = aws_security_group.balancer[0].id
  description                  = "Health checks"
  referenced_security_group_id = aws_security_group.instance.id
  ip_protocol                  = "tcp"
  from_port                    = 9464
  to_port                      = 9464
}
