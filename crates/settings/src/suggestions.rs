//! Suggests a similar name when the name of a setting is misspelt.

/// The minimum length, in letters, of a misspelt name for which longer names that begin with it are
/// suggested.
const MIN_PREFIX_LENGTH: usize = 4;

/// Returns at most three of the `candidates` that are similar to `name`, beginning with the most
/// similar one. A candidate is similar if at most a third of the letters of `name` differ, or if it
/// begins with `name` and `name` has at least four letters. Case is ignored.
pub fn similar_names<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let letters = name.chars().count();
    names_within(name, candidates, (letters / 3).max(1), letters >= MIN_PREFIX_LENGTH)
}

/// Returns at most three of the `candidates` that differ from `name` in at most `most` letters,
/// beginning with the most similar one. If `takes_longer`, also returns those that begin with
/// `name`. Two exchanged letters count as one. Case is ignored.
pub fn names_within<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    most: usize,
    takes_longer: bool,
) -> Vec<&'a str> {
    let name = name.to_ascii_lowercase();
    let mut found: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = candidate.to_ascii_lowercase();
            let distance = strsim::osa_distance(&name, &other);
            let is_beginning = takes_longer && other.starts_with(&name);
            (distance <= most || is_beginning).then_some((distance, candidate))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Returns ` Did you mean ...?` with the candidate that is most similar to `name`, as formatted by
/// `show`. Returns an empty string if no candidate is similar.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    show: impl Fn(&str) -> String,
) -> String {
    similar_names(name, candidates)
        .first()
        .map(|near| format!(" Did you mean {}?", show(near)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_comes_first() {
        let candidates = ["app.R", "apps.R", "shiny-app", "a"];
        assert_eq!(similar_names("APP.r2", candidates), ["app.R", "apps.R"]);
        assert_eq!(similar_names("shinyapp", candidates), ["shiny-app"]);
        assert!(similar_names("something", candidates).is_empty());
        let limits = ["max_header_size", "max_body_size", "maxima"];
        assert_eq!(similar_names("max_body", limits), ["max_body_size"]);
        assert!(similar_names("max", limits).is_empty());
    }

    #[test]
    fn suggestions_use_the_spelling_of_the_caller() {
        let show = |name: &str| format!("`--{name}`");
        assert_eq!(did_you_mean("prot", ["port", "host"], show), " Did you mean `--port`?");
        assert_eq!(did_you_mean("zzzzzz", ["port"], show), "");
    }
}
