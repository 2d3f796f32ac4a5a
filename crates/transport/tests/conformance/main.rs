//! What every transport does: as a link, and through both drivers, the blocking client and the asynchronous server, with
//! real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod death;
mod ends;
mod handshake;
mod messages;
mod waiting;

use forebay_transport::testing::link::{self, Pairs};
use forebay_transport::{Kind, Link};

/// Links of one kind.
struct Of(Kind);

impl Pairs for Of {
    fn pair(&mut self) -> (Box<dyn Link>, Box<dyn Link>) {
        ends::pair(self.0)
    }
}

macro_rules! cases {
    ($($of:ident: $($case:ident),*;)*) => {
        $($(#[test]
        fn $case() {
            $of::$case(KIND);
        })*)*
    };
}

macro_rules! conforms {
    ($module:ident, $kind:expr) => {
        mod $module {
            use super::*;

            const KIND: Kind = $kind;

            #[test]
            fn it_is_a_link() {
                link::suite(&mut Of(KIND));
            }

            cases! {
                messages: messages_echo, messages_keep_their_order, a_message_that_is_too_long_is_not_sent;
                handshake: a_wrong_secret_is_refused, what_was_heard_opens_nothing,
                    what_is_meant_for_another_is_refused, streams_cut_anywhere_end_cleanly;
                waiting: a_silent_peer_meets_the_deadline, what_could_not_be_sent_is_not_missed,
                    a_slow_reader_is_cut_off_in_bounds, a_peer_that_stands_still_is_waited_for;
                death: a_dead_peer_is_named, a_peer_that_dies_amid_a_message_has_not_said_it,
                    a_frame_that_claims_too_much_is_refused;
            }

            #[test]
            fn payloads_go_both_ways() {
                messages::payloads_go_both_ways(KIND, false);
            }
        }
    };
}

conforms!(shm, Kind::Shm);
conforms!(tcp, Kind::Tcp);
conforms!(in_process, Kind::InProcess);

#[test]
fn a_process_that_is_killed_is_gone() {
    for kind in [Kind::Shm, Kind::Tcp] {
        death::a_process_that_is_killed_is_gone(kind);
    }
}

#[test]
#[ignore = "the other process of the test above, which kills it"]
fn a_process_of_its_own() {
    death::stand_still_in_a_process_of_its_own();
}
