// Package upstream answers one question: give me a connection to the place
// where requests are sent.
//
// Begin with [ParseTarget], which turns the text of a setting into a [Target],
// and [Target.UseTLS] when the operator named certificate files. Make one
// [Pool] per [Target.Key] with [NewPool]. Then, per attempt:
//
//   - [Pool.TryPooled] gives a kept connection without blocking, without a
//     context and without allocating, or nil;
//   - [Pool.Get] does the same and dials when there is none. Its error is
//     always a [*DialError], and after it surely nothing of the request was sent;
//   - exactly one of [Conn.Release], [Conn.Close], [Conn.Abort] or
//     [Conn.CloseStale] ends the use of a [Conn].
//
// What is promised:
//
//   - A connection from the pool was looked at before it was handed out, or is
//     by [Conn.SendLooking] before it is written to (see [GetOptions.Unseen]): one that
//     the upstream closed, or that says something nobody asked for, is not used.
//     The upstream may still close it one microsecond later; the
//     caller must expect that on any Conn with Reused set, and report it with
//     CloseStale so that the pool learns the upstream's patience.
//   - Names are resolved anew for every dial and every address is tried.
//   - A TLS stream cut off without close_notify reads as
//     [io.ErrUnexpectedEOF], never as [io.EOF].
//   - No goroutine runs while a pool is unused. One timer per pool runs while
//     it holds idle connections, and [Pool.Close] ends it.
//   - Nothing but the target, or what its name resolves to, is ever dialled;
//     proxy settings of the environment are not read.
//
// What to avoid: sharing a Conn between two requests, keeping a Conn after its
// use was ended, matching on error text (use [DialError.Kind]).
//
// The package imports the standard library only and has no logger: it returns
// errors and counts ([Pool.Stats]).
package upstream
