// ONNX Runtime tells min and max what to do with NaN. Eigen 3.4.0's functors know how, its arrays cannot be asked.
template <int Nan, typename Other>
auto (min)(const ArrayBase<Other>& other) const {
  using Op = internal::scalar_min_op<Scalar, typename Other::Scalar, Nan>;
  return CwiseBinaryOp<Op, const Derived, const Other>(derived(), other.derived());
}
template <int Nan, typename Other>
auto (max)(const ArrayBase<Other>& other) const {
  using Op = internal::scalar_max_op<Scalar, typename Other::Scalar, Nan>;
  return CwiseBinaryOp<Op, const Derived, const Other>(derived(), other.derived());
}
template <int Nan>
auto (min)(const Scalar& other) const {
  return this->template min<Nan>(PlainObject::Constant(rows(), cols(), other));
}
template <int Nan>
auto (max)(const Scalar& other) const {
  return this->template max<Nan>(PlainObject::Constant(rows(), cols(), other));
}
