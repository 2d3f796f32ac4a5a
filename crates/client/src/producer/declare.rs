//! What a rank offers: fields, particle species, buffers, attributes.

use crate::connection::rpc::lock;
use crate::producer::rank::Producer;
use crate::rank_bounds::field_of;
use forebay_core::attr::Attr;
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::ids::check_name;
use forebay_core::{Error, Result};
use forebay_wire::client::producer::Request;
use std::sync::Arc;

impl Producer {
    /// Adds a field to the output contract, or changes its global shape from the next step on. One that is static is declared
    /// before the first step, and put in it. Waits for an answer.
    pub fn array(&self, field: Field) -> Result<()> {
        let field = Field { sequence: self.sequence, ..field };
        let _rank = self.lock_rank()?;
        let state = self.state()?;
        field.check()?;
        if state.open.is_some() {
            return Err(Error::step_order(format!("field '{}' cannot be defined within a step", field.name)));
        }
        if let (true, Some(last)) = (field.is_static, state.last) {
            return Err(Error::step_order(format!(
                "field '{}' is static: it is declared before the first step of this rank, and step {last} was begun",
                field.name
            )));
        }
        drop(state);
        self.ask_home_between_steps(|home| home.call(&Request::Define(field.clone()), "to take a field"))?;
        lock(&self.state).fields.insert(field.name.clone(), Arc::new(field));
        Ok(())
    }

    /// Declares a particle species: a group of fields that share one count. Each is offered as `species/name`;
    /// it has no global shape, and its first dimension counts the particles: `[n]`, or `[n, components]`.
    /// The blocks of a species that have one number must have one count; `put` checks that. Waits for an
    /// answer for each field.
    pub fn particles(&self, species: &str, fields: Vec<Field>) -> Result<()> {
        check_name("species", species)?;
        let fail = |text: String| Err(Error::invalid(format!("species '{species}': {text}")));
        if species.contains('/') {
            return fail("its name has a '/', which stands between it and the names of its fields".into());
        }
        if fields.is_empty() {
            return fail("it has no field".into());
        }
        for field in &fields {
            check_name("field", &field.name)?;
            if field.shape.is_some() || field.ndim == 0 {
                return fail(format!(
                    "field '{}' needs a first dimension that counts particles, and no global shape",
                    field.name
                ));
            }
        }
        for mut field in fields {
            field.name = format!("{species}/{}", field.name);
            let name = field.name.clone();
            self.array(field)?;
            self.state()?.species.add(name, species);
        }
        Ok(())
    }

    /// Declares a buffer: bytes, of another length at each step and rank if need be, offered at the steps that
    /// are multiples of `every`. It is put as a block of `uint8` with one dimension and no offset. Waits for
    /// an answer.
    pub fn buffer(&self, name: &str, every: u32) -> Result<()> {
        self.array(Field { every, ..Field::new(name, Dtype::U8, None, 1) })
    }

    /// Declares that ranks say which part of space of so many dimensions they have: [`Producer::put_rank_bounds`], at the steps that
    /// are multiples of `every`. It is a field like others, called [`crate::RANK_BOUNDS`]. Waits for an answer.
    pub fn rank_bounds(&self, ndim: usize, every: u32) -> Result<()> {
        self.array(field_of(ndim, every)?)
    }

    /// Sets an attribute of the stream, or of a field that this rank has declared, for the rest of the run:
    /// readers see it from the next step on. One rank is enough; where several set it, they must agree. To set
    /// it to another value is a conflict. All attributes of a stream take up to 64 KiB. Between steps; waits
    /// for an answer.
    pub fn attr(&self, field: Option<&str>, key: &str, attr: Attr) -> Result<()> {
        let _rank = self.lock_rank()?;
        let state = self.state()?;
        attr.check(key)?;
        if state.open.is_some() {
            return Err(Error::step_order(format!("attribute '{key}' cannot be set within a step")));
        }
        if let Some(name) = field {
            state.field(&self.stream, name).map_err(|error| error.during(format!("attribute '{key}'")))?;
        }
        let name = (field.map(str::to_owned), key.to_owned());
        drop(state);
        let set = Request::SetAttr { field: name.0.clone(), key: name.1.clone(), attr: attr.clone() };
        self.ask_home_between_steps(|home| home.call(&set, "to take an attribute"))?;
        lock(&self.state).attrs.insert(name, attr);
        Ok(())
    }

    /// Sets an attribute of the step that is open: readers see it with this step alone, before one of the stream of the same
    /// name. One rank is enough; where several set it, they must agree, which is seen when the step closes. Those of a step take up
    /// to 64 KiB. Does not wait.
    pub fn step_attr(&self, key: &str, attr: Attr) -> Result<()> {
        let mut state = self.state()?;
        let open = state.open_for(&format!("attribute '{key}'"))?;
        open.attrs.set_at_step(key, attr).map(drop)
    }
}
