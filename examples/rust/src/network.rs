//! A session of the network `digits`, which is linked into the program.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr;

#[repr(C)]
struct RawSession {
    _private: [u8; 0],
}

extern "C" {
    fn digits_create(options: *const c_void, session: *mut *mut RawSession) -> c_int;
    fn digits_run(session: *mut RawSession, inputs: *const *const c_void, outputs: *const *mut c_void) -> c_int;
    fn digits_destroy(session: *mut RawSession) -> c_int;
    fn digits_last_error(session: *const RawSession) -> *const c_char;
}

/// What the library says of a failure.
#[derive(Debug)]
pub struct Error(pub String);

/// A session: it may move to another thread, and runs on one at a time.
pub struct Session(*mut RawSession);

unsafe impl Send for Session {}

impl Session {
    /// A session with the default options.
    pub fn new() -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        let status = unsafe { digits_create(ptr::null(), &mut raw) };
        checked(status, raw)?;
        Ok(Session(raw))
    }

    /// The probability of each digit for an image of 8 × 8.
    pub fn run(&mut self, image: &[f32; 64]) -> Result<[f32; 10], Error> {
        let mut probability = [0.0; 10];
        let inputs = [image.as_ptr().cast()];
        let outputs = [probability.as_mut_ptr().cast()];
        checked(unsafe { digits_run(self.0, inputs.as_ptr(), outputs.as_ptr()) }, self.0)?;
        Ok(probability)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        unsafe { digits_destroy(self.0) };
    }
}

fn checked(status: c_int, session: *const RawSession) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let text = unsafe { CStr::from_ptr(digits_last_error(session)) };
    Err(Error(text.to_string_lossy().into_owned()))
}
