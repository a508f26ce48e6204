//! Settings that `serve()` in R passes to the program, in an environment variable.

use rookery_settings::table::{find, find_former_in};
use rookery_settings::{Given, Places, Raw, Setting, Source};

/// Lines `name=value`, with `option:` in front of options of the R session. A list has a line for
/// each value; `%` and ends of lines are written as URLs do.
const VARIABLE: &str = "ROOKERY_INTERNAL_ARGUMENTS";

/// Reads the arguments, of which there are none unless R started the program.
///
/// # Errors
/// Fails with a message when an argument is wrong.
pub(crate) fn read() -> Result<Vec<Given>, String> {
    read_lines(&std::env::var(VARIABLE).unwrap_or_default())
}

/// Returns the variable, which R processes are started without.
pub(crate) fn variable() -> &'static str {
    VARIABLE
}

fn read_lines(text: &str) -> Result<Vec<Given>, String> {
    let mut found: Vec<(&'static Setting, Source, Vec<Raw>)> = Vec::new();
    for line in text.lines() {
        let (source, line) = match line.strip_prefix("option:") {
            Some(line) => (Source::Option, line),
            None => (Source::Argument, line),
        };
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let former = || find_former_in(Places::R, name).map(|found| found.setting);
        let Some(setting) = find(name).or_else(former) else {
            return Err(format!("`{name}` is not a setting."));
        };
        let value = Raw::Text(value.replace("%0A", "\n").replace("%25", "%"));
        match found.iter_mut().find(|(own, from, _)| own.name == setting.name && *from == source) {
            Some((_, _, values)) => values.push(value),
            None => found.push((setting, source, vec![value])),
        }
    }
    let given = found.into_iter().map(|(setting, source, mut values)| {
        let raw = match values.pop() {
            Some(one) if values.is_empty() => one,
            last => Raw::List(values.into_iter().chain(last).collect()),
        };
        let value = setting.read(&raw).map_err(|invalid| invalid.at(&source.show(setting)))?;
        Ok(Given { setting, value, source, place: None })
    });
    given.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let given = read_lines(text)?;
        Ok(given.iter().map(|it| format!("{} {:?} {:?}", it.setting.name, it.source, it.value)).collect())
    }

    #[test]
    fn arguments_and_options_of_r_are_told_apart() {
        assert_eq!(
            read("drain=5\noption:error_detail=full\nwarmup=/a\nwarmup=/b\nlog=a%25%0Ab\n").unwrap(),
            [
                "drain Argument Number(5.0)",
                "error_detail Option Text(\"full\")",
                "warmup Argument List([\"/a\", \"/b\"])",
                "log Argument Path(\"a%\\nb\")",
            ]
        );
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn names_that_r_still_has_are_accepted() {
        assert_eq!(
            read("kill_stuck=5\nbody_bytes=1\nrequest_timeout=2").unwrap(),
            [
                "worker_timeout Argument Number(5.0)",
                "max_body_size Argument Number(1.0)",
                "request_timeout Argument Number(2.0)"
            ]
        );
    }

    #[test]
    fn a_wrong_argument_is_told() {
        assert_eq!(read("nonsense=1").unwrap_err(), "`nonsense` is not a setting.");
        assert_eq!(
            read("port=http").unwrap_err(),
            "`port` must be a whole number from 0 to 65535, not `http`."
        );
        assert!(read("port=1\nport=2").is_err());
    }
}
