package http

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

const (
	batchType = "application/vnd.microsoft.iothub.json"
	plainType = "application/octet-stream"

	// batchBytes is the largest body of a batch: the service's limit of 256 KB, minus the margin of
	// the official Java SDK.
	batchBytes = 255*1024 - 1
	// headerBytes bounds the headers of a single message; front ends commonly refuse more than 16 KB
	// of headers.
	headerBytes = 8 << 10
)

// check refuses a message that HTTP cannot carry or that no hub would take.
func check(m *transport.Message) *transport.Error {
	if size := m.Size(); size > transport.MaxMessageSize {
		e := operr.TooLarge(size, len(m.Body), transport.MaxMessageSize)
		e.Proto = proto
		return e
	}
	if e := operr.NoPlace(m, "HTTPS", false); e != nil {
		e.Proto = proto
		return e
	}
	if e := checkTexts(m); e != nil {
		return e
	}
	for i := range m.Properties {
		p := &m.Properties[i]
		switch {
		case !isToken(p.Name):
			return invalid("message property name " + strconv.Quote(p.Name) + " cannot be sent over HTTP; use ASCII letters, " +
				"digits and ! # $ % & ' * + - . ^ _ ` | ~")
		case !utf8.ValidString(p.Value):
			return invalid("message property " + strconv.Quote(p.Name) + " is not valid UTF-8; carry binary data in the body")
		}
	}
	return nil
}

func invalid(text string) *transport.Error {
	return failed(transport.OpSend, transport.Invalid, errors.New(text))
}

// isToken reports whether s can be part of a header name, RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// plain reports whether s survives unchanged as a header value.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

// fitsHeaders reports whether the properties of a message can be sent as headers. Header names lose
// their case on the way, so names with capitals fit only if capitals is set.
func fitsHeaders(m *transport.Message, capitals bool) bool {
	size, fit := fitTexts(m)
	if !fit {
		return false
	}
	for i := range m.Properties {
		p := &m.Properties[i]
		if !plain(p.Value) || !capitals && strings.ToLower(p.Name) != p.Name {
			return false
		}
		size += len(headerApp) + len(p.Name) + len(p.Value) + len(": \r\n")
	}
	return size <= headerBytes
}

// addHeaders adds the properties of a message to h.
func addHeaders(h http.Header, m *transport.Message) {
	eachSystemProperty(m, func(name, value string) { h[name] = []string{value} })
	for i := range m.Properties {
		p := &m.Properties[i]
		h[headerApp+p.Name] = []string{p.Value}
	}
}

// appendEntry appends a message in the form of a batch entry.
func appendEntry(dst []byte, m *transport.Message) []byte {
	dst = append(dst, `{"body":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, m.Body)
	dst = append(dst, `","base64Encoded":true`...)
	begin := len(dst)
	eachSystemProperty(m, func(name, value string) { dst = appendMember(dst, begin, "", name, value) })
	for i := range m.Properties {
		dst = appendMember(dst, begin, headerApp, m.Properties[i].Name, m.Properties[i].Value)
	}
	if len(dst) > begin {
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendMember appends a member of "properties"; begin is the offset of that object in dst.
func appendMember(dst []byte, begin int, prefix, name, value string) []byte {
	if len(dst) == begin {
		dst = append(dst, `,"properties":{"`...)
	} else {
		dst = append(dst, ',', '"')
	}
	dst = append(dst, prefix...)
	dst = append(dst, name...) // a token: needs no escaping
	dst = append(dst, '"', ':', '"')
	dst = appendEscaped(dst, value)
	return append(dst, '"')
}

// appendEscaped appends s as the content of a JSON string, RFC 8259 section 7. s must be valid
// UTF-8.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			dst = append(dst, b)
		}
	}
	return dst
}
