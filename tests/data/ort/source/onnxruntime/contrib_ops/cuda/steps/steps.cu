void run(const Params& params) {
  if (sm >= 86) {
    run_steps_sm86(params);
  } else if (sm >= 60) {
    run_steps_sm60(params);
  }
}
