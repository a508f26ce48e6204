//! The course of the last ten minutes as a line of bars, for `rookery status --watch`.

use std::collections::VecDeque;

use serde_json::Value;

/// The number of bars in a line.
const BARS: usize = 60;

/// The seconds that a bar stands for, and those of the whole line.
const BAR_SECONDS: f64 = 10.0;
const SPAN: f64 = 600.0;

/// The bars from the lowest to the highest.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The course of one figure: its values with their times in seconds.
#[derive(Debug, Default)]
pub(super) struct Trend(VecDeque<(f64, f64)>);

impl Trend {
    /// Adds the value of the time `at`, in seconds. Drops all values if `at` is earlier than the
    /// last one, because the machine has been restarted.
    pub(super) fn add(&mut self, at: f64, value: f64) {
        if self.0.back().is_some_and(|(last, _)| at < *last) {
            self.0.clear();
        }
        self.0.push_back((at, value));
        while self.0.front().is_some_and(|(first, _)| *first <= at - SPAN) {
            self.0.pop_front();
        }
    }

    /// Returns the largest value.
    pub(super) fn max(&self) -> f64 {
        self.0.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    /// Returns the bars, the last of which is the present. A bar is the mean of its values, and a
    /// space if it has no value. `top` is the value of the highest bar.
    pub(super) fn bars(&self, top: f64) -> String {
        let Some((end, _)) = self.0.back() else { return String::new() };
        let mut bars = [(0.0, 0_u32); BARS];
        for (at, value) in &self.0 {
            // The last bar is the present.
            let first = (0..BARS).rfind(|bar| f64_of(BARS - bar) * BAR_SECONDS > end - at);
            if let Some(bar) = first.and_then(|index| bars.get_mut(index)) {
                *bar = (bar.0 + value, bar.1 + 1);
            }
        }
        let bar = |(sum, count): (f64, u32)| match count {
            0 => ' ',
            _ => {
                let share = sum / f64::from(count) / top * f64_of(HEIGHTS.len());
                let reached = (1..HEIGHTS.len()).take_while(|height| f64_of(*height) <= share);
                HEIGHTS[reached.count()]
            }
        };
        bars.into_iter().map(bar).collect()
    }
}

fn f64_of(small: usize) -> f64 {
    f64::from(u32::try_from(small).unwrap_or(u32::MAX))
}

/// The trends of the requests and messages per second, and of the share of the time in which the R
/// processes were busy.
#[derive(Debug, Default)]
pub(super) struct Trends {
    rate: Trend,
    busy: Trend,
}

impl Trends {
    /// Replaces the courses by the samples of a server's history.
    pub(super) fn load(&mut self, history: &Value) {
        *self = Trends::default();
        for sample in history.as_array().into_iter().flatten() {
            let number = |name: &str| sample[name].as_f64().unwrap_or_default();
            let ratios = sample["busy"].as_array().into_iter().flatten();
            let ratios = ratios.filter_map(|process| process[1].as_f64());
            self.add(number("at"), number("count") / number("seconds").max(0.1), ratios);
        }
    }

    /// Adds the values of a snapshot.
    pub(super) fn update(&mut self, snapshot: &Value, rate: f64) {
        let workers = snapshot["report"]["workers"].as_array().into_iter().flatten();
        let ratios = workers.filter_map(|worker| worker["busy_ratio"].as_f64());
        self.add(snapshot["clock"].as_f64().unwrap_or_default(), rate, ratios);
    }

    fn add(&mut self, at: f64, rate: f64, ratios: impl Iterator<Item = f64>) {
        let (sum, count) = ratios.fold((0.0, 0_u32), |(sum, count), it| (sum + it, count + 1));
        self.rate.add(at, rate);
        self.busy.add(at, if count == 0 { 0.0 } else { sum / f64::from(count) });
    }

    /// Returns the courses as lines, or none if there are no values yet.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.rate.0.is_empty() {
            return Vec::new();
        }
        let most = self.rate.max();
        vec![
            format!("{} per second, at most {most:.1}", self.rate.bars(most.max(1.0))),
            format!("{} R busy, at most {:.0} %", self.busy.bars(1.0), 100.0 * self.busy.max()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bars_are_means_and_the_last_one_is_the_present() {
        let mut trend = Trend::default();
        assert_eq!(trend.bars(1.0), "");
        for (at, value) in [(1000.0, 8.0), (1021.0, 2.0), (1028.0, 4.0), (1030.0, 0.0)] {
            trend.add(at, value);
        }
        let bars: Vec<char> = trend.bars(8.0).chars().collect();
        assert_eq!(bars.len(), BARS);
        // The first value is 30 s old. The last bar has the values of the last 10 s.
        assert_eq!(bars[BARS - 4..], ['█', ' ', ' ', '▃']);
        assert!(bars[..BARS - 4].iter().all(|bar| *bar == ' '));
        assert!((trend.max() - 8.0).abs() < 1e-9);
        // Values of more than ten minutes ago are gone, and an earlier time drops all of them.
        trend.add(1610.0, 1.0);
        assert!((trend.max() - 4.0).abs() < 1e-9);
        trend.add(5.0, 1.0);
        assert_eq!(trend.0.len(), 1);
    }

    #[test]
    fn the_history_comes_before_the_snapshots() {
        let mut trends = Trends::default();
        trends.load(&json!([
            { "at": 100.0, "seconds": 5.0, "count": 50, "busy": [[0, 0.5], [1, 1.0]] },
            { "at": 105.0, "seconds": 5.0, "count": 0, "busy": [] },
        ]));
        trends.update(
            &json!({ "clock": 120.0, "report": { "workers": [{ "busy_ratio": 0.25 }] } }),
            5.0,
        );
        let lines = trends.lines();
        let (rate, busy) = (&lines[0], &lines[1]);
        assert!(rate.ends_with("█▁▅ per second, at most 10.0"), "{rate}");
        assert!(busy.ends_with("▇▁▃ R busy, at most 75 %"), "{busy}");
        // What another version sends is not shown, and does no harm.
        trends.load(&json!({ "samples": 1 }));
        assert!(trends.lines().is_empty());
    }
}
