//! The inner loops over one row, in the widest vectors of this CPU.
//!
//! Every variant computes the same operations in the same order, so that a picture's boxes do not depend
//! on the machine: a test compares them bit by bit.

use super::taps::{LANES, LINE_PADDING, Taps};

/// Which variant runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Simd {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Default for Simd {
    fn default() -> Self {
        Self::best()
    }
}

/// Rows of one picture's values for red, green and blue.
pub(super) type Rgb<'a> = [&'a mut [f32]; 3];

impl Simd {
    /// Every variant that this CPU has.
    pub(super) fn available() -> impl DoubleEndedIterator<Item = Self> {
        let variants = [
            Some(Self::Portable),
            #[cfg(target_arch = "x86_64")]
            std::arch::is_x86_feature_detected!("avx2").then_some(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            (std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512vl")
                && std::arch::is_x86_feature_detected!("avx512dq"))
            .then_some(Self::Avx512),
        ];
        variants.into_iter().flatten()
    }

    fn best() -> Self {
        Self::available().next_back().unwrap_or(Self::Portable)
    }

    /// A line between two rows of samples, `weight` of the way from `upper` to `lower`, sampled at
    /// `taps`. `line` is scratch; `out` is a whole number of blocks long, what lies behind the last
    /// value is overwritten too.
    pub(super) fn scale(
        self,
        (upper, lower, weight): (&[u8], &[u8], f32),
        taps: &Taps,
        line: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        line.resize(upper.len() + LINE_PADDING, 0.0);
        match self {
            Self::Portable => {
                blend(upper, lower, weight, line);
                sample(line, taps, out);
            }
            // SAFETY: a variant only exists on a CPU that has its instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::scale_avx2(upper, lower, weight, taps, line, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::scale_avx512(upper, lower, weight, taps, line, out) },
        }
    }

    /// A line of interleaved RGB between two rows, sampled at `columns` and scaled into three rows.
    pub(super) fn scale_rgb(
        self,
        (upper, lower, weight): (&[u8], &[u8], f32),
        columns: &Taps,
        line: &mut Vec<f32>,
        factor: f32,
        rgb: Rgb<'_>,
    ) {
        line.resize(upper.len(), 0.0);
        match self {
            Self::Portable => {
                blend(upper, lower, weight, line);
                sample_rgb(line, columns, factor, rgb);
            }
            // SAFETY: a variant only exists on a CPU that has its instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe {
                x86::scale_rgb_avx2(upper, lower, weight, columns, line, factor, rgb);
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe {
                x86::scale_rgb_avx512(upper, lower, weight, columns, line, factor, rgb);
            },
        }
    }

    /// Rows of luma, blue and red difference to red, green and blue times `factor`. The inputs may be
    /// longer than the outputs.
    pub(super) fn colour(self, ycc: [&[f32]; 3], factor: f32, rgb: Rgb<'_>) {
        match self {
            Self::Portable => colour(ycc, factor, rgb),
            // SAFETY: a variant only exists on a CPU that has its instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::colour_avx2(ycc, factor, rgb) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::colour_avx512(ycc, factor, rgb) },
        }
    }
}

/// A row between two rows. The vertical half comes first: the compiler turns it into vector code, and
/// the horizontal half then runs once instead of twice.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once per instruction set of its callers")]
fn blend(upper: &[u8], lower: &[u8], weight: f32, line: &mut [f32]) {
    for ((value, &u), &l) in line.iter_mut().zip(upper).zip(lower) {
        let (u, l) = (f32::from(u), f32::from(l));
        *value = u + (l - u) * weight;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once per instruction set of its callers")]
fn sample(line: &[f32], taps: &Taps, out: &mut [f32]) {
    for (value, (first, second, weight)) in out.iter_mut().zip(taps.iter()) {
        let (left, right) = (line[first], line[second]);
        *value = left + (right - left) * weight;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once per instruction set of its callers")]
fn sample_rgb(line: &[f32], columns: &Taps, factor: f32, [red, green, blue]: Rgb<'_>) {
    let outputs = red.iter_mut().zip(green.iter_mut()).zip(blue.iter_mut());
    for ((first, second, weight), ((r, g), b)) in columns.iter().zip(outputs) {
        let (left, right) = (&line[first * 3..first * 3 + 3], &line[second * 3..second * 3 + 3]);
        *r = (left[0] + (right[0] - left[0]) * weight) * factor;
        *g = (left[1] + (right[1] - left[1]) * weight) * factor;
        *b = (left[2] + (right[2] - left[2]) * weight) * factor;
    }
}

/// Full-range BT.601 (JFIF 1.02, page 3), clamped like a picture of 8 bits but not rounded.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once per instruction set of its callers")]
fn colour([y, cb, cr]: [&[f32]; 3], factor: f32, [red, green, blue]: Rgb<'_>) {
    let inputs = y.iter().zip(cb).zip(cr);
    let outputs = red.iter_mut().zip(green.iter_mut()).zip(blue.iter_mut());
    for (((&y, &cb), &cr), ((r, g), b)) in inputs.zip(outputs) {
        let (cb, cr) = (cb - 128.0, cr - 128.0);
        *r = (y + 1.402 * cr).clamp(0.0, 255.0) * factor;
        *g = (y - 0.344_136 * cb - 0.714_136 * cr).clamp(0.0, 255.0) * factor;
        *b = (y + 1.772 * cb).clamp(0.0, 255.0) * factor;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m256i, _mm256_add_ps, _mm256_blendv_ps, _mm256_castsi256_ps, _mm256_cmpgt_epi32,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_permutevar8x32_ps,
        _mm256_set1_epi32, _mm256_storeu_ps, _mm256_sub_epi32, _mm256_sub_ps, _mm512_add_epi32,
        _mm512_add_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_permutex2var_ps,
        _mm512_set1_epi32, _mm512_storeu_ps, _mm512_sub_epi32, _mm512_sub_ps,
    };

    use super::{LANES, Rgb, Taps, blend, colour, sample, sample_rgb};

    #[target_feature(enable = "avx2")]
    pub(super) fn scale_avx2(
        upper: &[u8],
        lower: &[u8],
        weight: f32,
        taps: &Taps,
        line: &mut [f32],
        out: &mut [f32],
    ) {
        blend(upper, lower, weight, line);
        if !taps.fit(8) {
            return sample(line, taps, out);
        }
        let blocks = taps.first.as_chunks::<8>().0.iter().zip(taps.weight.as_chunks::<8>().0);
        for ((first, weight), out) in blocks.zip(out.as_chunks_mut::<8>().0) {
            let window = window::<16>(line, first[0]);
            // SAFETY: every pointer is to an array of at least the 8 values that are loaded or stored,
            // and needs no alignment.
            unsafe {
                let base = _mm256_set1_epi32(first[0].cast_signed());
                let left = _mm256_sub_epi32(_mm256_loadu_si256(first.as_ptr().cast()), base);
                let right = _mm256_sub_epi32(left, _mm256_set1_epi32(-1));
                let (low, high) =
                    (_mm256_loadu_ps(window.as_ptr()), _mm256_loadu_ps(window[8..].as_ptr()));
                let (left, right) = (pick(low, high, left), pick(low, high, right));
                let weight = _mm256_loadu_ps(weight.as_ptr());
                let step = _mm256_mul_ps(_mm256_sub_ps(right, left), weight);
                _mm256_storeu_ps(out.as_mut_ptr(), _mm256_add_ps(left, step));
            }
        }
    }

    /// Values out of 16, by index.
    #[target_feature(enable = "avx2")]
    fn pick(low: __m256, high: __m256, index: __m256i) -> __m256 {
        // The permutation looks at the lowest three bits of an index only.
        let beyond = _mm256_castsi256_ps(_mm256_cmpgt_epi32(index, _mm256_set1_epi32(7)));
        let (low, high) =
            (_mm256_permutevar8x32_ps(low, index), _mm256_permutevar8x32_ps(high, index));
        _mm256_blendv_ps(low, high, beyond)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn scale_avx512(
        upper: &[u8],
        lower: &[u8],
        weight: f32,
        taps: &Taps,
        line: &mut [f32],
        out: &mut [f32],
    ) {
        blend(upper, lower, weight, line);
        if !taps.fit(LANES) {
            return sample(line, taps, out);
        }
        let blocks =
            taps.first.as_chunks::<LANES>().0.iter().zip(taps.weight.as_chunks::<LANES>().0);
        for ((first, weight), out) in blocks.zip(out.as_chunks_mut::<LANES>().0) {
            let window = window::<{ 2 * LANES }>(line, first[0]);
            // SAFETY: every pointer is to an array of at least the 16 values that are loaded or stored,
            // and needs no alignment.
            unsafe {
                let base = _mm512_set1_epi32(first[0].cast_signed());
                let left = _mm512_sub_epi32(_mm512_loadu_si512(first.as_ptr().cast()), base);
                let right = _mm512_add_epi32(left, _mm512_set1_epi32(1));
                let (low, high) =
                    (_mm512_loadu_ps(window.as_ptr()), _mm512_loadu_ps(window[LANES..].as_ptr()));
                let left = _mm512_permutex2var_ps(low, left, high);
                let right = _mm512_permutex2var_ps(low, right, high);
                let weight = _mm512_loadu_ps(weight.as_ptr());
                let step = _mm512_mul_ps(_mm512_sub_ps(right, left), weight);
                _mm512_storeu_ps(out.as_mut_ptr(), _mm512_add_ps(left, step));
            }
        }
    }

    /// The samples that one block of values lies between.
    fn window<const SAMPLES: usize>(line: &[f32], first: u32) -> &[f32; SAMPLES] {
        line[first as usize..]
            .first_chunk()
            .expect("a line is padded by the samples of a whole window")
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn scale_rgb_avx2(
        upper: &[u8],
        lower: &[u8],
        weight: f32,
        columns: &Taps,
        line: &mut [f32],
        factor: f32,
        rgb: Rgb<'_>,
    ) {
        blend(upper, lower, weight, line);
        sample_rgb(line, columns, factor, rgb);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn scale_rgb_avx512(
        upper: &[u8],
        lower: &[u8],
        weight: f32,
        columns: &Taps,
        line: &mut [f32],
        factor: f32,
        rgb: Rgb<'_>,
    ) {
        blend(upper, lower, weight, line);
        sample_rgb(line, columns, factor, rgb);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn colour_avx2(ycc: [&[f32]; 3], factor: f32, rgb: Rgb<'_>) {
        colour(ycc, factor, rgb);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn colour_avx512(ycc: [&[f32]; 3], factor: f32, rgb: Rgb<'_>) {
        colour(ycc, factor, rgb);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::Axis;

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    proptest! {
        /// Any scale, also those at which a block reaches further than a kernel's window.
        #[test]
        fn variants_agree_to_the_bit(
            samples in proptest::collection::vec(any::<[u8; 2]>(), 1..600),
            scaled in 1..200_u32,
            weight in 0.0..1.0_f32,
        ) {
            let (upper, lower): (Vec<u8>, Vec<u8>) = samples.iter().map(|[u, l]| (*u, *l)).unzip();
            let mut taps = Taps::default();
            let length = samples.len() as u32;
            taps.prepare(Axis::plain(length), length, scaled);
            let run = |simd: Simd| {
                let mut out = vec![f32::NAN; (scaled as usize).next_multiple_of(LANES)];
                // A longer row before leaves its values behind the end of this one.
                let mut line = vec![1e30; 1000];
                simd.scale((&upper, &lower, weight), &taps, &mut line, &mut out);
                out.truncate(scaled as usize);
                let mut rgb = vec![f32::NAN; 3 * out.len()];
                let (r, rest) = rgb.split_at_mut(out.len());
                let (g, b) = rest.split_at_mut(out.len());
                simd.colour([&out, &out, &out], 0.5, [r, g, b]);
                (bits(&out), bits(&rgb))
            };
            let portable = run(Simd::Portable);
            for simd in Simd::available() {
                prop_assert_eq!(&run(simd), &portable, "{:?}", simd);
            }
        }

        #[test]
        fn interleaved_variants_agree_to_the_bit(
            samples in proptest::collection::vec(any::<[u8; 6]>(), 1..300),
            scaled in 1..200_usize,
            weight in 0.0..1.0_f32,
        ) {
            let upper: Vec<u8> = samples.iter().flat_map(|s| [s[0], s[1], s[2]]).collect();
            let lower: Vec<u8> = samples.iter().flat_map(|s| [s[3], s[4], s[5]]).collect();
            let mut taps = Taps::default();
            let length = samples.len() as u32;
            taps.prepare(Axis::plain(length), length, scaled as u32);
            let run = |simd: Simd| {
                let mut rgb = vec![f32::NAN; 3 * scaled];
                let (r, rest) = rgb.split_at_mut(scaled);
                let (g, b) = rest.split_at_mut(scaled);
                simd.scale_rgb((&upper, &lower, weight), &taps, &mut Vec::new(), 0.5, [r, g, b]);
                bits(&rgb)
            };
            let portable = run(Simd::Portable);
            for simd in Simd::available() {
                prop_assert_eq!(&run(simd), &portable, "{:?}", simd);
            }
        }
    }
}
