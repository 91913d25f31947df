package workload

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// take is Server.take for the request. It records the fault that happens.
func (q *request) take(s *Server, k FaultKind) *Fault {
	f := s.take(k, q.record.Call, q.record.Module)
	if f != nil {
		q.record.Faults = append(q.record.Faults, k)
	}
	return f
}

// before applies the faults that happen before a request is handled; true when they have ended it.
func (s *Server) before(q *request) (over bool) {
	if f := q.take(s, FaultSlow); f != nil && !q.sleep(f.Delay) {
		panic(http.ErrAbortHandler)
	}
	if q.take(s, FaultCutBefore) != nil {
		s.cut(q)
	}
	if q.take(s, FaultMute) != nil {
		q.wait(nil)
		panic(http.ErrAbortHandler)
	}
	if f := q.take(s, FaultNotHTTP); f != nil {
		s.notHTTP(q, f)
		return true
	}
	if f := q.take(s, FaultAnswerStatus); f != nil {
		s.send(q, f.Status, mustJSON(errorBody{"fault " + f.Kind.String()}))
		return true
	}
	return false
}

// sleep waits for d; false when the connection has ended before, by the client or by Close.
func (q *request) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return q.wait(timer.C)
}

// wait waits for a time; false when the connection has ended before.
func (q *request) wait(until <-chan time.Time) bool {
	http.NewResponseController(q.w).SetReadDeadline(time.Time{}) // it would count as a disconnect
	select {
	case <-until:
		return true
	case <-q.Context().Done():
	}
	return false
}

// cut ends the connection with RST.
func (s *Server) cut(q *request) {
	s.record(q)
	abort(q.conn)
	panic(http.ErrAbortHandler)
}

// notHTTP writes bytes in place of an answer and ends the connection.
func (s *Server) notHTTP(q *request, f *Fault) {
	s.record(q)
	text := f.Bytes
	if len(text) == 0 {
		text = []byte("\x00\xffno status\r\n\r\n")
	}
	conn, _, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	conn.Write(text)
	conn.Close()
}

func (s *Server) answer(q *request, status int, body []byte) {
	if q.take(s, FaultCutAfter) != nil {
		s.cut(q)
	}
	if status < http.StatusBadRequest {
		if f := q.take(s, FaultGarbage); f != nil {
			if body = f.Bytes; len(body) == 0 {
				body = []byte(`{"digest":`)
			}
			status = http.StatusOK
		}
		if q.take(s, FaultMalformed) != nil {
			status, body = http.StatusOK, q.padded([]byte("-- neither base64 nor PEM --"))
		}
		if f := q.take(s, FaultOversized); f != nil {
			status, body = http.StatusOK, q.padded(bytes.Repeat([]byte("A"), f.Size))
		}
	}
	if q.take(s, FaultCutDuring) != nil {
		s.record(q)
		q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		q.w.WriteHeader(status)
		q.w.Write(body[:len(body)/2])
		http.NewResponseController(q.w).Flush()
		panic(http.ErrAbortHandler) // ends the connection in order: RST could take the first half along
	}
	s.send(q, status, body)
}

// valueNames are the members of answers that hold a text in base64 or PEM.
var valueNames = map[Call]string{
	CallSign: "digest", CallEncrypt: "ciphertext", CallDecrypt: "plaintext",
	CallTrustBundle: "certificate", CallManifestTrustBundle: "certificate",
	CallIdentityCertificate: "certificate", CallServerCertificate: "certificate",
}

// padded returns an answer of the right form with the value of a member.
func (q *request) padded(value []byte) []byte {
	name := valueNames[q.record.Call]
	if name == "" {
		name = "padding"
	}
	return append(append([]byte(`{"`+name+`":"`), value...), `"}`...)
}

func (s *Server) send(q *request, status int, body []byte) {
	q.record.Status = status
	s.record(q)
	q.w.Header().Set("Content-Type", "application/json")
	q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	q.w.WriteHeader(status)
	q.w.Write(body)
}
