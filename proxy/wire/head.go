package wire

// Head is the header section of a request to an upstream, in the form of its wire.
type Head struct {
	Form   Form
	Fields []byte // as Lines all of it, the request line and the empty line included

	Method, Target, Authority []byte // of a Block; Authority may be empty
}
