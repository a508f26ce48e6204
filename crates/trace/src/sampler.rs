//! The decision whether a trace is recorded.

/// The decision for the first span of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RootSampler {
    /// Every trace is recorded.
    AlwaysOn,
    /// No trace is recorded.
    AlwaysOff,
    /// A trace is recorded if the lower 63 bits of its id are below this number. Every program that
    /// has the same ratio decides alike.
    Below(u64),
}

/// The sampler, which `OTEL_TRACES_SAMPLER` selects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sampler {
    root: RootSampler,
    /// True if the decision of the caller is followed where there is a caller.
    follows_parent: bool,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { root: RootSampler::AlwaysOn, follows_parent: true }
    }
}

impl Sampler {
    /// Returns the sampler with this name in `OTEL_TRACES_SAMPLER`, or `None` if the name is
    /// unknown or the ratio is no number from 0 to 1. `argument` is `OTEL_TRACES_SAMPLER_ARG`.
    pub(crate) fn named(name: &str, argument: Option<&str>) -> Option<Sampler> {
        let (follows_parent, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let root = match root {
            "always_on" => RootSampler::AlwaysOn,
            "always_off" => RootSampler::AlwaysOff,
            "traceidratio" => {
                let ratio: f64 = argument.map_or(Ok(1.0), |text| text.trim().parse()).ok()?;
                if !(0.0..=1.0).contains(&ratio) {
                    return None;
                }
                #[expect(clippy::cast_sign_loss, reason = "the ratio is not negative")]
                let limit = (ratio * 2_f64.powi(63)) as u64;
                RootSampler::Below(limit)
            }
            _ => return None,
        };
        Some(Sampler { root, follows_parent })
    }

    /// Returns true if a span is recorded. `is_parent_sampled` is the decision of the caller, or
    /// `None` for the first span of a trace.
    pub(crate) fn is_sampled(self, trace_id: &[u8; 16], is_parent_sampled: Option<bool>) -> bool {
        if let Some(is_sampled) = is_parent_sampled.filter(|_| self.follows_parent) {
            return is_sampled;
        }
        match self.root {
            RootSampler::AlwaysOn => true,
            RootSampler::AlwaysOff => false,
            RootSampler::Below(limit) => {
                let half = trace_id[8..].try_into().expect("half of 16 bytes");
                u64::from_be_bytes(half) >> 1 < limit
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_parent_only_where_the_name_says_so() {
        let id = [7; 16];
        for (name, argument, [root, of_sampled, of_unsampled]) in [
            ("always_on", None, [true, true, true]),
            ("always_off", None, [false, false, false]),
            ("parentbased_always_on", None, [true, true, false]),
            ("parentbased_always_off", None, [false, true, false]),
            ("traceidratio", Some("0"), [false, false, false]),
            ("traceidratio", None, [true, true, true]),
            ("parentbased_traceidratio", Some("0"), [false, true, false]),
            ("parentbased_traceidratio", Some("1.0"), [true, true, false]),
        ] {
            let sampler = Sampler::named(name, argument).unwrap();
            let decided = [None, Some(true), Some(false)].map(|it| sampler.is_sampled(&id, it));
            assert_eq!(decided, [root, of_sampled, of_unsampled], "{name}");
        }
        assert_eq!(Sampler::named("parentbased_always_on", None), Some(Sampler::default()));
        for (name, argument) in [
            ("", None),
            ("jaeger_remote", None),
            ("traceidratio", Some("1.1")),
            ("traceidratio", Some("-0.1")),
            ("traceidratio", Some("NaN")),
            ("traceidratio", Some("a")),
        ] {
            assert_eq!(Sampler::named(name, argument), None, "{name} {argument:?}");
        }
    }

    #[test]
    fn ratio_compares_the_lower_63_bits_of_the_trace_id() {
        let sampler = Sampler::named("traceidratio", Some("0.5")).unwrap();
        let id = |half: u64| {
            let mut id = [0xFF; 16];
            id[8..].copy_from_slice(&half.to_be_bytes());
            id
        };
        assert!(sampler.is_sampled(&id(0x7FFF_FFFF_FFFF_FFFF), None));
        assert!(!sampler.is_sampled(&id(0x8000_0000_0000_0000), None));
    }
}
