//! stub
/// s
pub(super) fn title(_: &super::super::compare::Comparison) -> String {
    String::new()
}
/// s
pub(super) fn body(_: &super::super::compare::Comparison) -> String {
    String::new()
}
