package atmodem

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
)

// maxFile is the size of the largest file that all modems take.
const maxFile = 10 << 10

// WriteCA writes a certificate in PEM to the modem's file Config.CA, in place of what is there. It
// does not need a SIM or a network, and ends a connection. Call it once for each modem: files
// survive power cycles.
func (m *Modem) WriteCA(ctx context.Context, pem []byte) error {
	if m.cfg.CA == "" || len(pem) == 0 || len(pem) > maxFile {
		return fault(transport.Invalid, errors.New("Config.CA is empty, or the certificate is, or has above 10240 bytes"))
	}
	s := byContext{ctx}
	if !m.take(s) {
		return lifetime.Cause(ctx)
	}
	defer m.release()
	m.detached()
	if err := m.prepare(s); err != nil {
		return err
	}
	d := m.cfg.Dialect
	if _, o := m.run(s, &d.remove, nil, nil); o != done && o != refused {
		return m.errorOf(s, &d.remove, o)
	}
	m.args.length = len(pem)
	n, o := m.run(s, &d.store, pem, nil)
	if o == done && n != len(pem) {
		o = refused
	}
	if o != done {
		return m.errorOf(s, &d.store, o)
	}
	return nil
}
