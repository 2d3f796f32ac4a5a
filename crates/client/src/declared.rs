//! What `interface/forebay.toml` declares, as the client has it: how handles are opened, and choices by number and name.

mod choices;
mod options;

pub use options::{ConsumerOptions, ProducerOptions, SpaceOptions};

#[cfg(test)]
mod tests {
    use crate::choice::Choice;
    use crate::group_options::TransportChoice;
    use crate::on_loss::OnLoss;
    use forebay_core::ErrorKind;
    use forebay_core::contract::Association;
    use forebay_core::steps::{Durability, Policy};

    fn round_trip<T: Choice + std::fmt::Debug>(values: &[T]) {
        for value in values {
            let named = value.named();
            assert_eq!(named.value, Some(*value));
            assert_eq!(T::of_name(named.name).unwrap(), *value);
            assert_eq!(T::of_number(named.number, "it").unwrap(), *value);
        }
    }

    #[test]
    fn every_value_has_a_number_and_a_name() {
        round_trip(&[Policy::DropOldest, Policy::Block, Policy::Latest]);
        round_trip(&[OnLoss::Skip, OnLoss::Fail]);
        round_trip(&[Durability::Local, Durability::Replicated]);
        round_trip(&[Association::Cell, Association::Vertex]);
        round_trip(&[TransportChoice::Auto, TransportChoice::Shm, TransportChoice::Tcp]);
    }

    #[test]
    fn an_unknown_value_is_told_what_there_is() {
        let error = Policy::of_name("fastest").unwrap_err();
        assert_eq!(error.text, "policy 'fastest' is not known: use drop-oldest, block or latest");
        let error = OnLoss::of_number(7, "options->on_loss").unwrap_err();
        assert_eq!(error.text, "options->on_loss is 7: use FB_ON_LOSS_SKIP (0) or FB_ON_LOSS_FAIL (1)");
        assert_eq!(Policy::of_name("spill").unwrap_err().kind, ErrorKind::Unsupported);
        assert_eq!(Policy::of_number(3, "options->policy").unwrap_err().kind, ErrorKind::Unsupported);
    }
}
