//go:build !linux

package main

func setReusePort(int) error { return nil }
