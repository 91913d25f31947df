package amqpwire

import "fmt"

// A composite is a described list with a table of fields. Its method fields is that table, for both
// reading and writing.
type composite interface {
	code() uint64
	fields(*fieldset)
}

// A fieldset transfers the fields of one composite from or to a list.
type fieldset struct {
	reading  bool
	tolerant bool // a string stands for a symbol, and the other way
	list     List // the list to read, or the list written so far
	index    int
	err      *Error
}

// next returns the next field to read and advances.
func (f *fieldset) next() any {
	i := f.index
	f.index++
	if i < len(f.list) {
		return f.list[i]
	}
	return nil
}

func (f *fieldset) write(v any) { f.list = append(f.list, v) }

func (f *fieldset) fail(v any) {
	if f.err == nil {
		f.err = malformed("field %d is a %T", f.index-1, v)
	}
}

// take reads the next field into p, and reports whether it is present.
func take[T any](f *fieldset, p *T) (present bool) {
	switch v := asText[T](f, f.next()).(type) {
	case T:
		*p = v
	case nil:
		return false
	default:
		f.fail(v)
	}
	return true
}

// must transfers a mandatory field.
func must[T any](f *fieldset, p *T) {
	switch {
	case !f.reading:
		f.write(*p)
	case !take(f, p) && f.err == nil:
		f.err = Errorf(InvalidField, "mandatory field %d is missing", f.index-1)
	}
}

// asText converts a text to the other type of text if the field has that type and the peer's
// mistake is tolerated.
func asText[T any](f *fieldset, v any) any {
	if !f.tolerant {
		return v
	}
	switch text := v.(type) {
	case string:
		if _, ok := any(*new(T)).(Symbol); ok {
			return Symbol(text)
		}
	case Symbol:
		if _, ok := any(*new(T)).(string); ok {
			return string(text)
		}
	}
	return v
}

// or transfers a field with a default.
func or[T interface {
	~bool | ~string | ~uint8 | ~uint16 | ~uint32 | ~uint64
}](f *fieldset, p *T, absent T) {
	switch {
	case f.reading:
		if !take(f, p) {
			*p = absent
		}
	case *p == absent:
		f.write(nil)
	default:
		f.write(*p)
	}
}

// Opt is an optional field whose absence differs from any value.
type Opt[T any] struct {
	V  T
	OK bool
}

// Some returns a field that is present.
func Some[T any](v T) Opt[T] { return Opt[T]{v, true} }

// may transfers an optional field.
func may[T any](f *fieldset, p *Opt[T]) {
	switch {
	case f.reading:
		*p = Opt[T]{}
		p.OK = take(f, &p.V)
	case p.OK:
		f.write(p.V)
	default:
		f.write(nil)
	}
}

// slice transfers bytes or a map, nil when absent.
func slice[S ~[]E, E any](f *fieldset, p *S) {
	switch {
	case f.reading:
		if !take(f, p) {
			*p = nil
		}
	case *p == nil:
		f.write(nil)
	default:
		f.write(*p)
	}
}

// anything transfers a field of any type.
func anything(f *fieldset, p *any) {
	if !f.reading {
		f.write(*p)
		return
	}
	*p = f.next()
}

// symbols transfers a field that holds no symbol, one symbol or an array of them.
func symbols(f *fieldset, p *[]Symbol) {
	if !f.reading {
		if len(*p) == 0 {
			f.write(nil)
		} else {
			f.write(symbolArray(*p))
		}
		return
	}
	*p = nil
	switch v := asText[Symbol](f, f.next()).(type) {
	case nil:
	case Symbol:
		*p = []Symbol{v}
	case Array:
		for _, item := range v {
			s, ok := asText[Symbol](f, item).(Symbol)
			if !ok {
				f.fail(v)
				return
			}
			*p = append(*p, s)
		}
	default:
		f.fail(v)
	}
}

// messageID transfers a message id: a uint64, UUID, []byte or string, nil when absent.
func messageID(f *fieldset, p *any) {
	if !f.reading {
		f.write(*p)
		return
	}
	v := f.next()
	switch v.(type) {
	case nil, uint64, UUID, []byte, string:
		*p = v
	case Symbol:
		if !f.tolerant {
			f.fail(v)
		}
		*p = Text(v)
	default:
		f.fail(v)
	}
}

// inner transfers a field that is a composite of one of the kinds, nil when absent.
func inner[T any](f *fieldset, p *T, kinds map[uint64]func() composite) {
	if !f.reading {
		if c, ok := any(*p).(composite); ok && !isNil(c) {
			f.write(describe(c))
		} else {
			f.write(nil)
		}
		return
	}
	v := f.next()
	if v == nil {
		return
	}
	d, ok := v.(*Described)
	if !ok {
		f.fail(v)
		return
	}
	c, err := undescribe(d, kinds, f.tolerant)
	if err == nil {
		if t, ok := c.(T); ok {
			*p = t
			return
		}
		err = malformed("field %d is a composite 0x%02x", f.index-1, c.code())
	}
	if f.err == nil {
		f.err = err
	}
}

func isNil(c composite) bool {
	switch c := c.(type) {
	case *Error:
		return c == nil
	case *Source:
		return c == nil
	case *Target:
		return c == nil
	}
	return false
}

// describe converts a composite to a value. Trailing absent fields are omitted.
func describe(c composite) *Described {
	return &Described{c.code(), listOf(c)}
}

// mostFields is how many fields the composite with the most of them has.
const mostFields = 14

// listOf returns the fields of a composite without the absent ones at the end.
func listOf(c composite) List {
	f := fieldset{list: make(List, 0, mostFields)}
	c.fields(&f)
	n := len(f.list)
	for n > 0 && f.list[n-1] == nil {
		n--
	}
	return f.list[:n]
}

// undescribe converts a value to a composite of one of the kinds.
func undescribe(d *Described, kinds map[uint64]func() composite, tolerant bool) (composite, *Error) {
	code, ok := descriptorCode(d.Descriptor)
	if !ok {
		return nil, malformed("composite with %s", descriptorText(d.Descriptor))
	}
	made, ok := kinds[code]
	if !ok {
		return nil, malformed("composite 0x%02x, which cannot be here", code)
	}
	list, ok := d.Value.(List)
	if !ok {
		return nil, malformed("composite 0x%02x is a %T", code, d.Value)
	}
	c := made()
	f := fieldset{reading: true, tolerant: tolerant, list: list}
	c.fields(&f)
	switch {
	case f.err != nil:
		f.err.Description = fmt.Sprintf("%s: %s", names[code], f.err.Description)
		return nil, f.err
	case len(list) > f.index:
		return nil, malformed("%s: %d fields", names[code], len(list))
	}
	return c, nil
}

// descriptorCode returns the number of a descriptor, which may also be a name.
func descriptorCode(descriptor any) (uint64, bool) {
	switch d := descriptor.(type) {
	case uint64:
		return d, true
	case Symbol:
		code, ok := codes[d]
		return code, ok
	}
	return 0, false
}

// descriptorText describes a descriptor that has no number.
func descriptorText(descriptor any) string {
	if name, ok := descriptor.(Symbol); ok {
		return fmt.Sprintf("the unknown descriptor %.64q", string(name))
	}
	return fmt.Sprintf("a descriptor that is a %T", descriptor)
}

// Descriptors [AMQP 1.0, 2.7, 2.8, 3.2, 3.4, 3.5, 5.3]. The domain is zero.
const (
	codeOpen                  = 0x10
	codeBegin                 = 0x11
	codeAttach                = 0x12
	codeFlow                  = 0x13
	codeTransfer              = 0x14
	codeDisposition           = 0x15
	codeDetach                = 0x16
	codeEnd                   = 0x17
	codeClose                 = 0x18
	codeError                 = 0x1d
	codeReceived              = 0x23
	codeAccepted              = 0x24
	codeRejected              = 0x25
	codeReleased              = 0x26
	codeModified              = 0x27
	codeSource                = 0x28
	codeTarget                = 0x29
	codeCoordinator           = 0x30
	codeMechanisms            = 0x40
	codeInit                  = 0x41
	codeChallenge             = 0x42
	codeResponse              = 0x43
	codeOutcome               = 0x44
	codeHeader                = 0x70
	codeDeliveryAnnotations   = 0x71
	codeMessageAnnotations    = 0x72
	codeProperties            = 0x73
	codeApplicationProperties = 0x74
	codeData                  = 0x75
	codeSequence              = 0x76
	codeValue                 = 0x77
	codeFooter                = 0x78
)

// names are the symbolic descriptors.
var names = map[uint64]Symbol{
	codeOpen: "amqp:open:list", codeBegin: "amqp:begin:list", codeAttach: "amqp:attach:list", codeFlow: "amqp:flow:list",
	codeTransfer: "amqp:transfer:list", codeDisposition: "amqp:disposition:list", codeDetach: "amqp:detach:list",
	codeEnd: "amqp:end:list", codeClose: "amqp:close:list", codeError: "amqp:error:list",
	codeReceived: "amqp:received:list",
	codeAccepted: "amqp:accepted:list", codeRejected: "amqp:rejected:list", codeReleased: "amqp:released:list",
	codeModified: "amqp:modified:list", codeSource: "amqp:source:list", codeTarget: "amqp:target:list",
	codeCoordinator: "amqp:coordinator:list", codeMechanisms: "amqp:sasl-mechanisms:list", codeInit: "amqp:sasl-init:list",
	codeChallenge: "amqp:sasl-challenge:list", codeResponse: "amqp:sasl-response:list",
	codeOutcome: "amqp:sasl-outcome:list",
	codeHeader:  "amqp:header:list", codeDeliveryAnnotations: "amqp:delivery-annotations:map",
	codeMessageAnnotations: "amqp:message-annotations:map", codeProperties: "amqp:properties:list",
	codeApplicationProperties: "amqp:application-properties:map", codeData: "amqp:data:binary",
	codeSequence: "amqp:amqp-sequence:list", codeValue: "amqp:amqp-value:*", codeFooter: "amqp:footer:map",
}

var codes = func() map[Symbol]uint64 {
	m := make(map[Symbol]uint64, len(names))
	for code, name := range names {
		m[name] = code
	}
	return m
}()
