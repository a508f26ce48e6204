//! Names that were perhaps meant.

/// At most three of `candidates` that differ by little, at most a third of the letters; the nearest first. Case does not
/// matter.
pub(crate) fn near(name: &str, candidates: impl IntoIterator<Item = String>) -> Vec<String> {
    let name = name.to_lowercase();
    let most = (name.chars().count() / 3).max(1);
    let mut found: Vec<(usize, String)> = candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    found.sort();
    found.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// "`a`, `b`"
pub(crate) fn quoted(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first() {
        let candidates = || ["app.R", "apps.R", "shiny-app", "a"].map(str::to_owned);
        assert_eq!(near("APP.r2", candidates()), ["app.R", "apps.R"]);
        assert_eq!(near("shinyapp", candidates()), ["shiny-app"]);
        assert!(near("something", candidates()).is_empty());
        assert_eq!(quoted(candidates().into_iter().take(2)), "`app.R`, `apps.R`");
    }
}
