package testbroker

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// slowPieces is in how many pieces SlowAnswer sends.
const slowPieces = 8

// The ways in which an answer goes.
type httpWay uint8

const (
	wayPlain   httpWay = iota
	wayNone            // not at all: the connection has ended, or the client is to believe so
	wayLast            // and the connection ends
	wayTorn            // half of it
	waySlow            // in pieces
	wayGarbage         // something else goes
	wayBare            // without its length
)

// An httpAnswer is what a request is answered with.
type httpAnswer struct {
	status int
	header http.Header // may be nil
	body   []byte

	// What faults make of it.
	skew  time.Duration // of its date
	way   httpWay
	fault *Injected // that is behind the way
}

// send answers the request.
func (q *httpRequest) send(a httpAnswer) {
	if a.header == nil {
		a.header = make(http.Header)
	}
	a.header["Date"] = []string{q.hub.now().Add(a.skew).UTC().Format(http.TimeFormat)}
	switch {
	case a.way == wayNone:
		panic(http.ErrAbortHandler)
	case a.way == wayPlain:
		q.sendPlain(a)
	case q.ProtoMajor == 2:
		q.happened(a.fault)
		q.sendStream(a)
	default:
		q.happened(a.fault)
		q.sendRaw(a)
	}
}

func (a *httpAnswer) hasLength() bool { return a.status != http.StatusNoContent && a.way != wayBare }

func (q *httpRequest) sendPlain(a httpAnswer) {
	maps.Copy(q.w.Header(), a.header)
	if a.hasLength() {
		q.w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	q.w.WriteHeader(a.status)
	q.w.Write(a.body) // nothing, for HEAD and where there must be none
}

// sendStream is for HTTP/2, where what happens to an answer is the stream's alone, but for garbage.
func (q *httpRequest) sendStream(a httpAnswer) {
	rc := http.NewResponseController(q.w)
	switch a.way {
	case wayLast:
		a.header.Set("Connection", "close") // which is said by GOAWAY
		q.sendPlain(a)
	case wayBare:
		maps.Copy(q.w.Header(), a.header)
		q.w.WriteHeader(a.status)
		rc.Flush()
		q.w.Write(a.body)
	case wayTorn:
		if len(a.body) > 1 {
			maps.Copy(q.w.Header(), a.header)
			q.w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
			q.w.Write(a.body[:len(a.body)/2])
			rc.Flush()
		}
		panic(http.ErrAbortHandler)
	case waySlow:
		step := a.fault.fault.Delay / slowPieces
		body := a.body
		a.body = nil
		if !q.sleep(step) {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(q.w.Header(), a.header)
		if a.hasLength() {
			q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		q.w.WriteHeader(a.status)
		rc.Flush()
		q.inPieces(body, slowPieces-1, step, func(p []byte) {
			q.w.Write(p)
			rc.Flush()
		})
	case wayGarbage:
		q.c.Write(a.fault.fault.garbageHTTP(2))
		q.c.farewell(faultError(GarbageAnswer))
		panic(http.ErrAbortHandler)
	}
}

// sendRaw is for HTTP/1.1: it takes the connection from the server, writes by itself, and ends the
// connection.
func (q *httpRequest) sendRaw(a httpAnswer) {
	conn, _, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer q.conn.end()
	conn.SetDeadline(time.Time{})
	text := a.text(q.Request)
	switch a.way {
	case wayTorn:
		half := len(text) - (len(a.body)+1)/2
		if len(a.body) == 0 {
			half = len(text) / 2
		}
		conn.Write(text[:half])
	case waySlow:
		q.inPieces(text, slowPieces, a.fault.fault.Delay/slowPieces, func(p []byte) { conn.Write(p) })
	case wayGarbage:
		conn.Write(a.fault.fault.garbageHTTP(1))
	default:
		conn.Write(text)
	}
	q.c.farewell(faultError(a.fault.fault.Kind))
}

// text is the answer as it goes over HTTP/1.1.
func (a *httpAnswer) text(r *http.Request) []byte {
	answer := http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: a.header,
		Body:          io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: -1,
		Close:         a.way != wayLast, // that it ends behind the last one is not announced
	}
	if a.hasLength() {
		answer.ContentLength = int64(len(a.body))
	}
	var b bytes.Buffer
	answer.Write(&b) // cannot fail
	return b.Bytes()
}

// inPieces writes p in so many pieces, the wait before each of them.
func (q *httpRequest) inPieces(p []byte, n int, wait time.Duration, write func([]byte)) {
	for i := range n {
		if !q.sleep(wait) {
			return
		}
		if piece := p[i*len(p)/n : (i+1)*len(p)/n]; len(piece) > 0 {
			write(piece)
		}
	}
}

func (f *Fault) garbageHTTP(major int) []byte {
	switch {
	case len(f.Bytes) > 0:
		return f.Bytes
	case major == 2:
		return []byte{0, 0, 0, 6, 0, 0, 0, 0, 0}
	}
	return []byte("\x00\xffno status\r\n\r\n")
}

// answerJSON is an answer with a body.
func answerJSON(v any, etag string) httpAnswer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // we made it
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if etag != "" {
		header.Set("ETag", `"`+etag+`"`)
	}
	return httpAnswer{status: http.StatusOK, header: header, body: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}
