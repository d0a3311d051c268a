/* What GCC's -fsanitize-coverage=trace-pc,trace-cmp calls that libFuzzer has no use for itself.
 *
 * libFuzzer counts the branches that Clang marks. GCC, which builds the C library as everywhere else,
 * only calls a function at each branch. Here that function counts in libFuzzer's section of extra
 * counters, so that an input which takes a new branch of the C library is kept too. */

#include <stdint.h>

/* Counters: libFuzzer looks through all of them after each input, which takes a few microseconds. The
 * library has about half as many branches; where two share a counter, one of them may be missed. */
#define COUNTER_BITS 15

/* Knuth's multiplier, 2^64 divided by the golden ratio: spreads neighbouring addresses. */
#define SPREAD 0x9E3779B97F4A7C15u

#define HOOK __attribute__((no_sanitize("address"), no_sanitize_coverage))

__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[1u << COUNTER_BITS];

/* The linker is told to call this for __sanitizer_cov_trace_pc (--wrap). */
HOOK void __wrap___sanitizer_cov_trace_pc(void)
{
  /* Relative to something in the program, so that the same branch is the same counter in each run. */
  uint64_t branch = (uintptr_t)__builtin_return_address(0) - (uintptr_t)counters;

  counters[(branch * SPREAD) >> (64 - COUNTER_BITS)]++;
}

/* libFuzzer learns from comparisons of integers only. */
HOOK void __sanitizer_cov_trace_cmpf(float a, float b)
{
  (void)a;
  (void)b;
}

HOOK void __sanitizer_cov_trace_cmpd(double a, double b)
{
  (void)a;
  (void)b;
}
