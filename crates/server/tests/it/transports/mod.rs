//! A matrix of transports and behaviours: clients get the same over each transport. A test is named
//! after its transport and its behaviour, such as `https13::a_text_is_compressed_on_request`.

mod fairness;
mod http1;
mod requests;
mod responses;
mod starvation;
mod streams;
mod websockets;

/// Makes a test of each behaviour over each transport.
macro_rules! matrix {
    ($($transport:ident: $variant:ident),*; $behaviours:tt) => {
        $(crate::transports::matrix!(@ $transport $variant $behaviours);)*
    };
    (@ $transport:ident $variant:ident { $($behaviour:ident,)* }) => {
        mod $transport {
            use crate::support::transport::Transport;
            $(#[test]
            fn $behaviour() {
                super::$behaviour(Transport::$variant);
            })*
        }
    };
}
pub(crate) use matrix;
