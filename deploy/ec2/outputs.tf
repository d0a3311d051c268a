output "camera_address" {
  description = "What cameras connect to. Behind an ALB use a name that its certificate is for."
  value = local.grouped ? "${aws_lb.this[0].dns_name}:${local.listener_port}" : (
    "${aws_instance.this[0].private_ip}:50051"
  )
}

output "instance_id" {
  description = "For `aws ssm start-session --target`; null with a balancer."
  value       = one(aws_instance.this[*].id)
}

output "autoscaling_group_name" {
  description = "The group behind the balancer; null without one."
  value       = one(aws_autoscaling_group.this[*].name)
}

output "security_group_id" {
  description = "Of the instances."
  value       = aws_security_group.instance.id
}

output "role_name" {
  description = "The instances' role, to be given rights of yours."
  value       = aws_iam_role.this.name
}
