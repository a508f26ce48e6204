//! Writes `r/R/settings-table.R`, from which R's help pages and tests take their facts about
//! settings.

use std::fmt::Write as _;

use rookery_settings::{Default, Places, Section, Setting, expected_form, table};

const HEAD: &str = "\
# Written by `make settings` from the table in crates/settings/src/table. Do not edit.
#
# One row for each setting that R accepts: its name, its argument, whether it is an
# option of R and a limit, its stability, its default, the accepted values, and its help in two
# parts.

";

/// Returns the file.
pub(crate) fn file() -> String {
    let mut file = HEAD.to_owned();
    file.push_str("setting_table <- rbind.data.frame(\n");
    let rows: Vec<String> = table::all()
        .filter(|row| row.places.has(Places::R) || row.places.has(Places::OPTION))
        .map(|row| format!("  {}", entry(row)))
        .collect();
    let _ = writeln!(file, "{},\n  stringsAsFactors = FALSE\n)", rows.join(",\n"));
    file
}

fn entry(row: &Setting) -> String {
    let default = row.default_text().unwrap_or("none");
    let is_literal = matches!(row.default, Default::Is(_));
    let logical = |is: bool| if is { "TRUE" } else { "FALSE" };
    format!(
        "list(\n    name = {}, argument = {}, is_option = {}, is_limit = {}, \
         stability = {},\n    default = {}, is_literal = {},\n    wanted = {},\n    help = \
         {},\n    paragraph = {}\n  )",
        text(row.name),
        text(&row.r_argument().unwrap_or_default()),
        logical(row.places.has(Places::OPTION)),
        logical(row.section == Section::Limits),
        text(row.stability.name()),
        text(default),
        logical(is_literal),
        text(&expected_form(row)),
        text(row.help),
        text(row.paragraph),
    )
}

/// Writes an R string in ASCII.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            _ => {
                let _ = write!(quoted, "\\u{{{:x}}}", u32::from(letter));
            }
        }
    }
    quoted.push('"');
    quoted
}
