package httprange

import (
	"errors"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update"
)

// head is what counts of the head of an answer.
type head struct {
	status          int
	length          int64  // -1: not given
	from, to, total int64  // of Content-Range; total -1: not given
	etag            string // if it is strong
	tagged          bool   // there is an ETag
	after, date     string
	chunked         bool
	encoded         bool // these are other bytes than the image's
}

const (
	maxHead    = 16 << 10
	maxLine    = 512 // longer lines are ignored
	maxInterim = 4
)

var (
	errHead     = violation("the head of the answer is malformed")
	errLongHead = violation("the head of the answer is longer than 16 KB")
	errRange    = violation("the server sent another part than the requested one, or one without size and length, or a " +
		"few bytes of it")
	errNoRanges = failure(transport.Unsupported,
		"the server does not serve parts of files, or a proxy or a captive portal answered in its place; use another server")
)

func violation(text string) error {
	return &transport.Error{Kind: transport.Protocol, Proto: proto, Err: violated{errors.New(text)}}
}

// violated is retryable a few times in a row: bytes may have been damaged on the way.
type violated struct{ error }

func (v violated) Unwrap() error { return transport.ErrMaybeDamaged }

// readHead reads the head of the next final answer.
func (s *Source) readHead() (head, error) {
	bytes := 0
	for range maxInterim {
		line, err := s.line(&bytes)
		if err != nil {
			return head{}, err
		}
		h := head{length: -1, total: -1}
		if !h.statusLine(line) {
			return head{}, errHead
		}
		for {
			line, err := s.line(&bytes)
			if err != nil {
				return head{}, err
			}
			if line == "" {
				break
			}
			if !h.field(line) {
				return head{}, errHead
			}
		}
		if h.status >= 200 {
			return h, nil
		}
	}
	return head{}, errHead
}

// line reads a line without its end. Of a line longer than maxLine it returns the name of the
// header with an empty value.
func (s *Source) line(bytes *int) (string, error) {
	var line []byte
	for {
		if s.unread == s.end {
			n, err := s.receive(s.in[:])
			if err != nil {
				return "", err
			}
			s.unread, s.end = 0, n
		}
		b := s.in[s.unread]
		s.unread++
		if *bytes++; *bytes > maxHead {
			return "", errLongHead
		}
		if b == '\n' {
			return cut(strings.TrimSuffix(string(line), "\r")), nil
		}
		if len(line) <= maxLine {
			line = append(line, b)
		}
	}
}

func cut(line string) string {
	if len(line) < maxLine {
		return line
	}
	name, _, _ := strings.Cut(line, ":")
	return name + ":"
}

func (h *head) statusLine(line string) bool {
	rest, ok := strings.CutPrefix(line, "HTTP/1.1 ")
	if !ok || len(rest) < 3 || len(rest) > 3 && rest[3] != ' ' {
		return false
	}
	status, ok := number(rest[:3])
	h.status = int(status)
	return ok && status >= 100 && status < 600
}

// field reads a header field and reports whether it is well-formed.
func (h *head) field(line string) bool {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || strings.ContainsAny(name, " \t") {
		return false
	}
	value = strings.Trim(value, " \t")
	switch {
	case texts.EqualFold(name, "Content-Length"):
		n, ok := number(value)
		if !ok || h.length >= 0 && h.length != n {
			return false
		}
		h.length = n
	case texts.EqualFold(name, "Content-Range"):
		return h.contentRange(value)
	case texts.EqualFold(name, "Transfer-Encoding"):
		h.chunked = true
	case texts.EqualFold(name, "Content-Encoding"):
		h.encoded = value != "" && !texts.EqualFold(value, "identity")
	case texts.EqualFold(name, "ETag"):
		h.tagged = value != ""
		if strong(value) {
			h.etag = value
		}
	case texts.EqualFold(name, "Retry-After"):
		h.after = value
	case texts.EqualFold(name, "Date"):
		h.date = value
	}
	return true
}

// contentRange reads "bytes 0-99/200".
func (h *head) contentRange(value string) bool {
	value, ok := strings.CutPrefix(value, "bytes ")
	part, total, ok2 := strings.Cut(value, "/")
	if !ok || !ok2 || part == "*" { // "bytes */200" comes with 416
		return ok && ok2
	}
	first, last, ok := strings.Cut(part, "-")
	from, ok1 := number(first)
	to, ok2 := number(last)
	size, ok3 := number(total)
	if !ok || !ok1 || !ok2 || !ok3 || to < from || size <= to {
		return false
	}
	h.from, h.to, h.total = from, to, size
	return true
}

// strong reports whether an ETag compares byte by byte, and can be sent back.
func strong(etag string) bool {
	return len(etag) >= 2 && len(etag) <= 128 && etag[0] == '"' && etag[len(etag)-1] == '"' && printable(etag)
}

// number reads a decimal number below 10^15.
func number(s string) (n int64, ok bool) {
	if s == "" || len(s) > 15 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// accept checks that an answer has the image from off on.
func (s *Source) accept(h *head, off int64) error {
	switch h.status {
	case 206:
	case 200:
		if s.etag != "" && h.tagged && h.etag != s.etag {
			return update.ErrChanged // If-Range
		}
		return errNoRanges // nor is it known that the image has changed
	case 412, 416:
		return update.ErrChanged // If-Match; an image that is shorter than that of the manifest
	default:
		return refusal(h)
	}
	changed := s.etag != "" && h.etag != s.etag || s.total != 0 && h.total != s.total
	switch {
	case h.chunked || h.encoded || h.total < 0 || h.from != off || h.length != h.to-h.from+1,
		h.length < min(times.MinProgress, h.total-off): // as many requests as there are bytes otherwise
		return errRange
	case changed:
		return update.ErrChanged
	}
	s.etag, s.total = h.etag, h.total
	return nil
}

// refusal is the error for a status.
func refusal(h *head) error {
	kind := statuscode.Of(h.status, statuscode.Storage).Kind
	if h.status/100 == 2 {
		kind = transport.Protocol // no other success answers a request for a part
	}
	e := &transport.Error{Kind: kind, Proto: proto,
		Err: &transport.StatusError{Service: "storage", Status: h.status}}
	if after, ok := times.ParseRetryAfterAt(h.after, h.date, time.Now()); ok {
		e.RetryAfter = min(after, times.MaxRetryAfter)
	}
	return e
}
