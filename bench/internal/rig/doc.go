// Package rig is what all judges in bench stand on: the outside of a program, processes, upstreams,
// clients, findings and reports. A judge adds its question and the answers that it accepts.
//
// Begin with [Main] and [NewFlags]. A [Bed] starts retryproxy, other proxies and servers, and ends
// all of them. [Findings] hold what must not be; a [Timeline] counts what happened and when.
//
// All traffic stays on loopback or in namespaces of the rig's own. Most judges need Linux.
package rig
