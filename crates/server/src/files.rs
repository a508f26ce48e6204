//! TEMP
use crate::connection::Connection;
use crate::reply::ReplyBody;
use http::Response;
use std::rc::Rc;
pub(crate) async fn answer(
    _: &Rc<Connection>,
    _: &http::request::Parts,
    _: bool,
) -> Option<Response<ReplyBody>> {
    None
}
