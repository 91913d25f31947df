package edge

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// maxAnswer bounds an answer of the daemon, head and body.
	maxAnswer = 2*maxBundle + 4<<10 // JSON writes a line end as two characters
	// maxInterim bounds the number of interim answers (1xx) before an answer.
	maxInterim = 5
)

// answer is an answer of the daemon.
type answer struct {
	status int
	body   []byte
}

// readAnswer reads the answer to a request. An answer that is not HTTP or too large is a violation;
// other errors are those of r.
func readAnswer(r io.Reader, request *http.Request) (*answer, error) {
	source := &reader{r: r, left: maxAnswer}
	buffered := bufio.NewReader(source)
	for range maxInterim + 1 {
		response, err := http.ReadResponse(buffered, request)
		if err != nil {
			return nil, source.explain(err)
		}
		if response.StatusCode < http.StatusOK {
			continue
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, source.explain(err)
		}
		return &answer{response.StatusCode, body}, nil
	}
	return nil, &violation{errors.New("too many interim answers")}
}

// errLong is the error of an answer that is too large.
var errLong = fmt.Errorf("it has more than %d bytes", maxAnswer)

// reader reads up to a limit and keeps the error of the reader below.
type reader struct {
	r    io.Reader
	left int
	err  error
}

func (s *reader) Read(p []byte) (n int, err error) {
	if s.left == 0 {
		s.err = &violation{errLong}
		return 0, s.err
	}
	n, err = s.r.Read(p[:min(len(p), s.left)])
	s.left -= n
	if err != nil {
		s.err = err
	}
	return n, err
}

// explain returns the cause of err, which package net/http returned: the peer's bytes or their
// reader. An answer that ends too early is a lost connection.
func (s *reader) explain(err error) error {
	switch {
	case s.err == nil:
		return &violation{err}
	case errors.Is(s.err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return s.err
}

// violation is an answer that makes no sense.
type violation struct{ error }

func (e *violation) Error() string   { return "the answer makes no sense: " + e.error.Error() }
func (e *violation) Unwrap() []error { return []error{e.error, transport.ErrViolation} }

// jsonError returns err without the part of the text that it quotes, which may be a secret.
func jsonError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("JSON member %q is not what it should be", scrub.Peer(wrong.Field))
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not JSON, from byte %d on", wrong.Offset)
	}
	return errors.New("a member is not base64")
}
