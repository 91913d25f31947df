package servicefront

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// The limits of an import: of a line of the file, and of the file of errors, both in bytes.
const (
	maxImportLine   = 1 << 20
	maxImportErrors = 16 << 20
)

// An importer changes the registry as the lines of a file say, each independently of the others,
// and writes the refused ones to a file.
type importer struct {
	hub     *hub.Hub
	in, out place
	errors  bytes.Buffer
	omitted int // refusals for which the file of errors has no room
	last    int // the line of the newest of them
}

// An importError is a line of the file of errors.
type importError struct {
	Line       int    `json:"line"`
	ImportMode string `json:"importMode,omitempty"`
	bulkError
}

// run imports the file. However it ends, the file of errors is that of this import.
func (m *importer) run(ctx context.Context, progress func(done, all int)) error {
	err := m.read(ctx, progress)
	if bad := m.finish(); err == nil {
		err = bad
	}
	return err
}

func (m *importer) read(ctx context.Context, progress func(done, all int)) error {
	file, err := m.open()
	if err != nil {
		return err
	}
	var parts []io.Reader
	for _, part := range file.Blocks {
		parts = append(parts, bytes.NewReader(part.Content))
	}
	lines := bufio.NewScanner(io.MultiReader(parts...))
	lines.Buffer(nil, maxImportLine)
	done, number := 0, 0
	for lines.Scan() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		number++
		done += len(lines.Bytes()) + 1
		m.line(number, lines.Bytes())
		progress(min(done, int(file.Size)), int(file.Size))
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s, line %d: %w; a line has at most %d bytes", m.in.blob, number+1, err, maxImportLine)
	}
	return nil
}

func (m *importer) open() (file hubdata.Blob, err error) {
	s := m.hub.Files.Store(m.in.container)
	if s == nil {
		return file, errors.New(files.BlobNoContainer.Message)
	}
	file, ok := s.Get(m.in.blob)
	if !ok {
		return file, fmt.Errorf("%s: %s", m.in.blob, files.BlobNotFound.Message)
	}
	for _, part := range file.Blocks {
		if part.Content == nil && part.Size > 0 {
			return file, fmt.Errorf("%s: the store keeps hashes only", m.in.blob)
		}
	}
	return file, nil
}

// line changes the identity of a line. Empty lines and a byte order mark are skipped.
func (m *importer) line(number int, raw []byte) {
	raw = bytes.TrimSpace(bytes.TrimPrefix(raw, []byte("\uFEFF")))
	if len(raw) == 0 {
		return
	}
	var b bulkItem
	if err := web.Decode(raw, &b); err != nil {
		m.refuse(number, &b, web.Errorf(hub.CodeArgumentInvalid, "%v", err))
		return
	}
	if b.ID != "" {
		b.DeviceID = b.ID
	}
	warning, err := b.change(m.hub)
	if err = errors.Join(err, warning); err != nil {
		m.refuse(number, &b, err)
	}
}

// refuse notes why a line was refused.
func (m *importer) refuse(number int, b *bulkItem, err error) {
	if m.errors.Len() > maxImportErrors {
		m.omitted, m.last = m.omitted+1, number
		return
	}
	bad := web.AsServiceError(err)
	m.write(importError{number, b.ImportMode, bulkError{b.DeviceID, b.ModuleID, bad.Code, bad.Text}})
}

// write adds a line to the file of errors.
func (m *importer) write(e importError) {
	if raw, err := json.Marshal(e); err == nil { // it cannot fail
		m.errors.Write(append(raw, '\n'))
	}
}

// finish writes the file of errors. Without errors it only empties that of an earlier import.
func (m *importer) finish() error {
	if m.omitted > 0 {
		m.write(importError{Line: m.last, bulkError: bulkError{ErrorCode: hub.CodeArgumentInvalid, ErrorStatus: fmt.Sprintf(
			"%d more lines up to this one were refused; this file has at most %d bytes of errors", m.omitted, maxImportErrors)}})
	}
	s := m.hub.Files.Store(m.out.container)
	if s == nil {
		return errors.New(files.BlobNoContainer.Message)
	}
	if _, old := s.Get(m.out.blob); m.errors.Len() == 0 && !old {
		return nil
	}
	return store(m.hub, m.out, m.errors.Bytes())
}
