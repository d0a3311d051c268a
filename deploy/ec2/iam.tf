# What an instance may do: be reached by SSM, read its package and its secrets. Nothing else.

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "this" {
  name_prefix        = "${var.name}-"
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = local.tags
}

resource "aws_iam_instance_profile" "this" {
  name_prefix = "${var.name}-"
  role        = aws_iam_role.this.name
  tags        = local.tags
}

resource "aws_iam_role_policy_attachment" "ssm" {
  role       = aws_iam_role.this.name
  policy_arn = "arn:${data.aws_partition.this.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

data "aws_iam_policy_document" "reads" {
  count = local.s3_object != "" || length(var.secret_arns) > 0 ? 1 : 0

  dynamic "statement" {
    for_each = local.s3_object != "" ? [local.s3_object] : []
    content {
      actions   = ["s3:GetObject"]
      resources = ["arn:${data.aws_partition.this.partition}:s3:::${statement.value}"]
    }
  }

  dynamic "statement" {
    for_each = length(var.secret_arns) > 0 ? [values(var.secret_arns)] : []
    content {
      actions   = ["secretsmanager:GetSecretValue"]
      resources = statement.value
    }
  }
}

resource "aws_iam_role_policy" "reads" {
  count       = length(data.aws_iam_policy_document.reads)
  name_prefix = "${var.name}-"
  role        = aws_iam_role.this.name
  policy      = data.aws_iam_policy_document.reads[0].json
}
