package settings

// shared: what belongs to an engine needs one, and one needs an upstream that
// is the same for all.
func (c *checker) shared() {
	s := c.s
	files := []struct{ key, value string }{
		{"SHARED_PASSWORD_FILE", s.SharedPasswordFile}, {"SHARED_CA", s.SharedCA}, {"SHARED_CERT", s.SharedCert}, {"SHARED_KEY", s.SharedKey},
	}
	for i, f := range files {
		switch {
		case f.value == "":
		case !s.SharedEngine.Set():
			c.problems.errorf(Prefix+f.key, f.value, "has no effect without %sSHARED", Prefix)
		case i > 0 && !s.SharedEngine.TLS:
			c.problems.errorf(Prefix+f.key, f.value, "has no effect on %sSHARED=%s; TLS is spoken with rediss://", Prefix, s.SharedEngine.Name())
		}
	}
	if (s.SharedCert == "") != (s.SharedKey == "") {
		c.problems.errorf(Prefix+"SHARED_CERT", s.SharedCert, "%[1]sSHARED_CERT and %[1]sSHARED_KEY need each other", Prefix)
	}
	switch {
	case !s.SharedEngine.Set() && s.Variable("SHARED_SCOPE") != "":
		c.problems.errorf(Prefix+"SHARED_SCOPE", s.SharedScope, "has no effect without %sSHARED", Prefix)
	case s.SharedEngine.Set() && s.Position == "inbound":
		c.problems.errorf(Prefix+"SHARED", s.SharedEngine.Name(),
			"processes share what they learn of one upstream, and each inbound one has its own (%s); where it is the same for all, set %sPOSITION=outbound", s.Default.Upstream, Prefix)
	}
}
