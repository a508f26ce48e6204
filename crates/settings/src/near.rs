//! Suggestions for misspelt names.

/// Returns at most three of `candidates` that are similar to `name`, the most similar first. Names
/// are similar when at most a third of their letters differ; case does not matter.
pub fn near<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let most = (name.chars().count() / 3).max(1);
    let mut found: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Returns ` Did you mean ...?` for the most similar of `candidates`, or an empty string.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    show: impl Fn(&str) -> String,
) -> String {
    near(name, candidates).first().map(|near| format!(" Did you mean {}?", show(near))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_comes_first() {
        let candidates = ["app.R", "apps.R", "shiny-app", "a"];
        assert_eq!(near("APP.r2", candidates), ["app.R", "apps.R"]);
        assert_eq!(near("shinyapp", candidates), ["shiny-app"]);
        assert!(near("something", candidates).is_empty());
    }

    #[test]
    fn a_suggestion_is_shown_as_the_caller_writes_names() {
        let show = |name: &str| format!("`--{name}`");
        assert_eq!(did_you_mean("prot", ["port", "host"], show), " Did you mean `--port`?");
        assert_eq!(did_you_mean("zzzzzz", ["port"], show), "");
    }
}
