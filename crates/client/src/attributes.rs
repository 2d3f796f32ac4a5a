//! Attributes that a producer sets.

use crate::connection::rpc::lock;
use crate::producer::Producer;
use forebay_core::attr::Attr;
use forebay_core::{Error, Result};
use forebay_wire::client::producer::Request;

impl Producer {
    /// Sets an attribute of the stream, or of a field that this rank has declared, for the rest of the run:
    /// readers see it from the next step on. One rank is enough; where several set it, they must agree. To set
    /// it to another value is a conflict. All attributes of a stream take up to 64 KiB. Between steps; waits
    /// for an answer.
    pub fn attr(&self, field: Option<&str>, key: &str, attr: Attr) -> Result<()> {
        let _turn = self.turn()?;
        let state = self.state()?;
        attr.check(key)?;
        if state.open.is_some() {
            return Err(Error::step_order(format!("attribute '{key}' cannot be set within a step")));
        }
        if let Some(name) = field {
            self.find(&state, name).map_err(|error| error.during(format!("attribute '{key}'")))?;
        }
        let name = (field.map(str::to_owned), key.to_owned());
        drop(state);
        let set = Request::SetAttr { field: name.0.clone(), key: name.1.clone(), attr: attr.clone() };
        self.ask_home(|home| home.call(&set, "to take an attribute"))?;
        lock(&self.state).attrs.insert(name, attr);
        Ok(())
    }
}
