//! Parses a nested list, such as `(add 1 (mul 2 3))`, to a tree in an arena, and evaluates it.

use rookery_arena::Arena;
use rookery_arena::collections::Vec;

/// A tree that borrows from the text and from the arena. It has no destructors to run.
#[derive(Debug)]
enum Tree<'a> {
    Number(i64),
    Call(&'a str, &'a [Tree<'a>]),
}

fn main() {
    let arguments: std::vec::Vec<String> = std::env::args().skip(1).collect();
    let text = match &arguments[..] {
        [] => "(add 1 (mul 2 3) (add 4))".to_owned(),
        words => words.join(" "),
    };
    let arena = Arena::new();
    match parse(&mut text.as_str(), &arena).and_then(|tree| evaluate(&tree)) {
        Some(number) => println!("{text} = {number}, in {} bytes", arena.len()),
        None => println!("{text} is not an expression of (add ...), (mul ...) and numbers"),
    }
}

fn parse<'a>(rest: &mut &'a str, arena: &'a Arena) -> Option<Tree<'a>> {
    if let Some(inside) = rest.trim_start().strip_prefix('(') {
        *rest = inside;
        let name = word(rest)?;
        let mut arguments = Vec::new_in(arena);
        loop {
            if let Some(after) = rest.trim_start().strip_prefix(')') {
                *rest = after;
                return Some(Tree::Call(name, arguments.into_slice()));
            }
            arguments.push(parse(rest, arena)?);
        }
    }
    word(rest)?.parse().ok().map(Tree::Number)
}

/// Takes the first word off the text.
fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = rest.trim_start();
    let end = text.find([' ', '(', ')']).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

fn evaluate(tree: &Tree<'_>) -> Option<i64> {
    let (name, arguments) = match tree {
        Tree::Number(number) => return Some(*number),
        Tree::Call(name, arguments) => (*name, arguments),
    };
    let mut numbers = arguments.iter().map(evaluate);
    match name {
        "add" => numbers.try_fold(0_i64, |sum, number| sum.checked_add(number?)),
        "mul" => numbers.try_fold(1_i64, |product, number| product.checked_mul(number?)),
        _ => None,
    }
}
