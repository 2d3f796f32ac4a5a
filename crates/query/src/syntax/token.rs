//! The words and signs of a text.

use crate::syntax::problem::Span;

/// What a word or a sign is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Digits, with underscores between them.
    Integer,
    /// A number with a point or an exponent.
    Float,
    /// A name, and none of the reserved words.
    Name,
    /// A name in backticks.
    Quoted,
    /// A reserved word, or a sign.
    Sign(Sign),
    End,
}

/// Makes the signs and reserved words of their spellings.
macro_rules! signs {
    ($($name:ident $text:literal),* $(,)?) => {
        /// A sign, or a reserved word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Sign { $($name),* }

        impl Sign {
            /// How it is written.
            pub(super) const fn text(self) -> &'static str {
                match self { $(Sign::$name => $text),* }
            }
        }
    };
}

signs! {
    And "and", Or "or", Not "not", For "for", Until "until", True "true", False "false", Nan "nan", Inf "inf",
    Open "(", Close ")", OpenRegion "[", CloseRegion "]", Comma ",", Semicolon ";", Colon ":", Ellipsis "...", Range "..",
    Dot ".", At "@", Is "=", Equal "==", NotEqual "!=", Less "<", LessEqual "<=", Greater ">", GreaterEqual ">=",
    Plus "+", Minus "-", Times "*", Divide "/", FloorDivide "//", Remainder "%", Power "**", Both "&", Either "|", Complement "~",
}

impl Sign {
    /// The reserved words.
    pub(super) const WORDS: [Sign; 9] = [
        Sign::And,
        Sign::Or,
        Sign::Not,
        Sign::For,
        Sign::Until,
        Sign::True,
        Sign::False,
        Sign::Nan,
        Sign::Inf,
    ];
}

/// A word or a sign, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Span,
}

impl Token {
    /// As messages say what was found.
    pub(super) fn described(&self, text: &str) -> String {
        let written = self.span.of(text);
        let short: String = match written.chars().nth(40) {
            Some(_) => written.chars().take(40).chain("...".chars()).collect(),
            None => written.into(),
        };
        match self.kind {
            Kind::Integer | Kind::Float => format!("the number {short}"),
            Kind::Name => format!("the name '{short}'"),
            Kind::Quoted => format!("the name {short}"),
            Kind::Sign(_) => format!("'{short}'"),
            Kind::End => "the end".into(),
        }
    }
}
