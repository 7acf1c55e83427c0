// Package network wraps a session of the network digits, which is linked into the program.
//
//go:generate nnefc compile ../../digits/model.nnef --name digits -o libdigits.a
package network

// #cgo LDFLAGS: ${SRCDIR}/libdigits.a -lm -lpthread
// #include "digits.h"
//
// // Go passes no pointer to memory that has pointers of Go's in it: the arrays of pointers are made here.
// static nnefc_status classify(nnefc_session *session, const float *image, float *probability) {
//     const void *inputs[] = {image};
//     void *outputs[] = {probability};
//     return digits_run(session, inputs, outputs);
// }
import "C"

import (
	"errors"
	"runtime"
)

// Session is a session with memory of its own. Calls from several goroutines at the same time fail; sessions of their own do not.
type Session struct{ raw *C.nnefc_session }

// New creates a session with that many threads, or with one for each processor if it is 0.
func New(threads int) (*Session, error) {
	options := C.nnefc_options{threads: C.int32_t(threads)}
	options.struct_size = C.sizeof_nnefc_options
	runtime.LockOSThread() // the message of a failure belongs to the thread
	defer runtime.UnlockOSThread()
	session := &Session{}
	if C.digits_create(&options, &session.raw) != C.NNEFC_OK {
		return nil, errors.New(C.GoString(C.digits_last_error(nil)))
	}
	runtime.SetFinalizer(session, (*Session).Close)
	return session, nil
}

// Run computes the probability of each digit for an image of 8 × 8.
func (session *Session) Run(image *[64]float32) (probability [10]float32, err error) {
	if session.raw == nil {
		return probability, errors.New("the session is closed")
	}
	status := C.classify(session.raw, (*C.float)(&image[0]), (*C.float)(&probability[0]))
	if status != C.NNEFC_OK {
		err = errors.New(C.GoString(C.digits_last_error(session.raw)))
	}
	runtime.KeepAlive(session)
	return probability, err
}

// Close frees the session's memory; it may be called again.
func (session *Session) Close() {
	C.digits_destroy(session.raw)
	session.raw = nil
}
