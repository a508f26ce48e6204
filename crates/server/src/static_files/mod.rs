//! Files served without the application.
