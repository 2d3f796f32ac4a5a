//! From a text to its words and signs.

use crate::syntax::problem::{Problem, Span};
use crate::syntax::token::{Kind, Sign, Token};
use forebay_core::ids::NAME_MAX;

type Result<T> = std::result::Result<T, Problem>;

/// All words and signs of a text, and its end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut lexer = Lexer { text, at: 0 };
    // Most have one sign, and a blank.
    let mut tokens = Vec::with_capacity(text.len() / 2 + 1);
    loop {
        let token = lexer.next()?;
        tokens.push(token);
        if token.kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Result<Token> {
        self.skip_blanks();
        let start = self.at;
        let kind = match self.peek() {
            None => Kind::End,
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some(c) if begins_name(c) => self.name()?,
            Some('`') => self.quoted()?,
            Some(c) => self.sign(c)?,
        };
        Ok(Token { kind, span: Span::new(start, self.at) })
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if c.is_whitespace() {
                self.at += c.len_utf8();
            } else {
                return;
            }
        }
    }

    fn number(&mut self) -> Result<Kind> {
        let start = self.at;
        self.digits();
        let mut kind = Kind::Integer;
        let digit_at = |text: &str, at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        if self.rest().starts_with('.') && digit_at(self.rest(), 1) {
            kind = Kind::Float;
            self.at += 1;
            self.digits();
        }
        if self.rest().starts_with(['e', 'E']) {
            let signed = usize::from(self.rest()[1..].starts_with(['+', '-']));
            if digit_at(self.rest(), 1 + signed) {
                kind = Kind::Float;
                self.at += 1 + signed;
                self.digits();
            }
        }
        let after = self.peek();
        if after.is_some_and(continues_name) {
            self.skip_name();
            let written = &self.text[start..self.at];
            return Err(self.problem(
                start,
                format!("'{written}' begins with digits and goes on with letters: a name like that stands in backticks, `{written}`"),
            ));
        }
        let ends_with_point = after == Some('.') && !self.rest().starts_with("..") && kind == Kind::Integer;
        if ends_with_point {
            self.at += 1;
            let written = &self.text[start..self.at];
            return Err(self.problem(
                start,
                format!("'{written}': a number has a digit on both sides of its point; write {written}0"),
            ));
        }
        Ok(kind)
    }

    /// Skips digits, and underscores between them.
    fn digits(&mut self) {
        let bytes = self.rest().as_bytes();
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        let mut length = 0;
        while is_digit(length) || (bytes.get(length) == Some(&b'_') && is_digit(length + 1)) {
            length += 1;
        }
        self.at += length;
    }

    fn name(&mut self) -> Result<Kind> {
        let start = self.at;
        self.skip_name();
        let written = &self.text[start..self.at];
        self.check_length(start, written.len())?;
        let word = Sign::WORDS.into_iter().find(|word| word.text() == written);
        Ok(word.map_or(Kind::Name, Kind::Sign))
    }

    fn skip_name(&mut self) {
        self.at += self.rest().find(|c| !continues_name(c)).unwrap_or(self.rest().len());
    }

    fn quoted(&mut self) -> Result<Kind> {
        let start = self.at;
        self.at += 1;
        let mut length = 0;
        loop {
            let Some(c) = self.peek() else {
                return Err(self.problem(start, "this backtick has no other one that ends the name"));
            };
            self.at += c.len_utf8();
            if c.is_control() {
                return Err(self.problem(start, "a name has no control characters: does a backtick lack?"));
            }
            if c == '`' && !self.rest().starts_with('`') {
                break;
            }
            self.at += usize::from(c == '`');
            length += c.len_utf8();
        }
        if length == 0 {
            return Err(self.problem(start, "a name has at least one character"));
        }
        self.check_length(start, length)?;
        Ok(Kind::Quoted)
    }

    fn check_length(&self, start: usize, length: usize) -> Result<()> {
        match length {
            ..=NAME_MAX => Ok(()),
            _ => Err(self.problem(start, format!("a name has at most {NAME_MAX} bytes, this one {length}"))),
        }
    }

    fn sign(&mut self, first: char) -> Result<Kind> {
        /// Longer ones before those that they begin with.
        const SIGNS: [Sign; 28] = [
            Sign::Ellipsis,
            Sign::Range,
            Sign::Equal,
            Sign::NotEqual,
            Sign::LessEqual,
            Sign::GreaterEqual,
            Sign::FloorDivide,
            Sign::Power,
            Sign::Open,
            Sign::Close,
            Sign::OpenRegion,
            Sign::CloseRegion,
            Sign::Comma,
            Sign::Semicolon,
            Sign::Colon,
            Sign::Dot,
            Sign::At,
            Sign::Is,
            Sign::Less,
            Sign::Greater,
            Sign::Plus,
            Sign::Minus,
            Sign::Times,
            Sign::Divide,
            Sign::Remainder,
            Sign::Both,
            Sign::Either,
            Sign::Complement,
        ];
        if let Some(hint) = self.hint(first) {
            let start = self.at;
            self.at += first.len_utf8();
            return Err(self.problem(start, hint));
        }
        let found = SIGNS.into_iter().find(|sign| self.rest().starts_with(sign.text()));
        let Some(sign) = found else {
            let start = self.at;
            self.at += first.len_utf8();
            return Err(self.problem(start, format!("the character {first:?} has no meaning here")));
        };
        self.at += sign.text().len();
        Ok(Kind::Sign(sign))
    }

    /// What to write instead of what other languages have.
    fn hint(&self, first: char) -> Option<&'static str> {
        let rest = self.rest();
        match first {
            '^' => Some("'^' has no meaning here: write ** for a power"),
            '"' | '\'' => Some("there are no texts here: a name that needs quoting stands in backticks"),
            '!' if !rest.starts_with("!=") => Some("'!' has no meaning here: write not"),
            '&' if rest.starts_with("&&") => Some("'&&' has no meaning here: write and"),
            '|' if rest.starts_with("||") => Some("'||' has no meaning here: write or"),
            '<' if rest.starts_with("<<") => Some("'<<' has no meaning here"),
            '>' if rest.starts_with(">>") => Some("'>>' has no meaning here"),
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                Some("a number has a digit on both sides of its point: write 0 before it")
            }
            _ => None,
        }
    }

    fn problem(&self, start: usize, what: impl Into<String>) -> Problem {
        Problem::invalid(Span::new(start, self.at), what)
    }
}

pub(super) fn begins_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

pub(super) fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
