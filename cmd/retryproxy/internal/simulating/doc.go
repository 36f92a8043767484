// Package simulating plays an outage in virtual time, several ways beside each
// other, and shows what came of each.
//
// A [Wish] is what a user asks for; Parse makes Runs of it, [Play] plays them,
// and the Simulation that comes out has three forms: Text for people, Document
// for programs, Figure for a plot. What is played is package policy/storm, which
// drives the code of package policy that the proxy itself decides by. Nothing
// here opens a socket or reads a clock: the same wish gives the same
// simulation.
package simulating
