package atmodem_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cross/arm/board/atmodem"
	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// all enables every fault at every place.
var all = flag.Bool("all", false, "test every fault at every place, not only a sample")

// sampleOf returns an eighth of n, n in a long run, or many with -all.
func sampleOf(n int) int {
	switch {
	case *all:
		return 1 << 20
	case testkit.Long():
		return n
	}
	return max(1, n/8)
}

// dial dials once, with the time that the client gives.
func (b *bench) dial(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := b.modem.Dial(ctx, nil)
	if err == nil {
		require.NoError(t, c.Close())
	}
	return err
}

// dialLong dials with more time.
func (b *bench) dialLong(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	_, err := b.modem.Dial(ctx, nil)
	return err
}

// Any byte on the way to the board may get lost, and bytes of commands until the board sends. A
// length that lost a digit makes a modem take a part of the payload or of the CA file, see the
// package documentation.
func TestALostByteCostsAConnectionAtMost(t *testing.T) {
	for _, k := range kinds {
		out, first, last := 0, 0, 0
		session := func(t *testing.T, change func(*modems.Config)) {
			in(t, func(t *testing.T) {
				s := k.setup
				s.modem = change
				b := newBench(t, s)
				b.writeCA(t, s)
				if change == nil {
					_, first = b.emu.Bytes()
				}
				b.begin(t, setup{})
				if change == nil {
					_, last = b.emu.Bytes()
				}
				c := b.config(10 * time.Second)
				b.runFor(t, c, func() {
					time.Sleep(2 * time.Minute)
					if change == nil {
						out, _ = b.emu.Bytes()
					}
					time.Sleep(2 * time.Minute)
				})
			})
		}
		t.Run(k.name, func(t *testing.T) {
			session(t, nil)
			all := out
			step := max(1, all/sampleOf(40))
			for lost := 1; lost <= all; lost += step {
				t.Run(fmt.Sprintf("to the board %d of %d", lost, all), func(t *testing.T) {
					session(t, func(c *modems.Config) { c.LoseOut = lost })
				})
			}
			for lost := first + 1; lost <= last; lost += max(1, (last-first)/sampleOf(15)) {
				t.Run(fmt.Sprintf("from the board %d of %d", lost, last), func(t *testing.T) {
					session(t, func(c *modems.Config) { c.LoseIn = lost })
				})
			}
		})
	}
}

// Noise changes a byte on the way to the board: of an answer, a length, an event. Bytes of payload
// have no checksum, see the page about modems.
func TestAChangedByteCostsAConnectionAtMost(t *testing.T) {
	for _, k := range kinds {
		all := 0
		session := func(t *testing.T, noise int, bits byte) {
			in(t, func(t *testing.T) {
				s := k.setup
				s.modem = func(c *modems.Config) { c.NoiseOut, c.NoiseBits = noise, bits }
				b := newBench(t, s)
				b.begin(t, s)
				b.runFor(t, b.config(10*time.Second), func() {
					time.Sleep(2 * time.Minute)
					if noise == 0 {
						all = b.emu.Framing()
					}
					time.Sleep(4 * time.Minute)
				})
			})
		}
		t.Run(k.name, func(t *testing.T) {
			session(t, 0, 0)
			for i, noise := 0, 1; noise <= all; i, noise = i+1, noise+max(1, all/sampleOf(40)) {
				bits := [...]byte{0x01, 0x02, 0x04, 0x10, 0x40, 0x80, 0xff}[i%7]
				t.Run(fmt.Sprintf("%#02x at %d of %d", bits, noise, all), func(t *testing.T) { session(t, noise, bits) })
			}
		})
	}
}

func TestAModemThatIsOffIsSwitchedOn(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		s.modem = func(c *modems.Config) { c.Off = true; c.Boot = 12 * time.Second }
		b := newBench(t, s)
		b.begin(t, s)
		require.NoError(t, b.dial(t))
	})
}

// A dial has 30 s and a power cycle of SIM7x00 takes 45 s: the next dial goes on with it.
func TestAPowerCycleTakesSeveralDials(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		b := newBench(t, s)
		b.begin(t, s)
		starts := b.emu.Starts()
		b.emu.Kill()
		begin, dials := time.Now(), 0
		for b.dial(t) != nil {
			dials++
			require.Less(t, time.Since(begin), 3*time.Minute)
		}
		require.Positive(t, dials)
		require.Equal(t, starts+2, b.emu.Starts(), "off and on, once each")
	})
}

func TestAPowerCycleMayBeTheUsers(t *testing.T) {
	in(t, func(t *testing.T) {
		s := setup{family: modems.Quectel}
		var b *bench
		cycles := 0
		s.config = func(c *atmodem.Config) {
			c.PowerKey = nil
			c.PowerCycle = func(context.Context) { cycles++; b.emu.Cut() }
		}
		b = newBench(t, s)
		b.begin(t, s)
		b.emu.Kill()
		require.ErrorIs(t, b.dialLong(t), transport.Timeout)
		require.NoError(t, b.dialLong(t))
		require.Equal(t, 1, cycles)
	})
}

// A modem that nobody can restart is reported, and found again.
func TestAModemThatDoesNotAnswer(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		s.config = func(c *atmodem.Config) { c.PowerKey = nil }
		b := newBench(t, s)
		b.begin(t, s)
		b.emu.Kill()
		require.ErrorIs(t, b.dialLong(t), transport.Timeout)
		err := b.dialLong(t)
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorContains(t, err, "check power")
		b.emu.Cut()
		time.Sleep(10 * time.Second)
		require.NoError(t, b.dialLong(t))
	})
}

// A hub that is away costs few restarts of the modem.
func TestTheLadder(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		away := true
		s.modem = func(c *modems.Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if away {
					return nil, context.DeadlineExceeded
				}
				return dial(ctx, network, addr)
			}
		}
		b := newBench(t, s)
		b.begin(t, s)
		starts := b.emu.Starts()
		for i := 1; i <= 300; i++ {
			require.ErrorIs(t, b.dialLong(t), transport.Network)
			time.Sleep(10 * time.Second)
		}
		// at 16, 32, 64, 128 and 256 failures; off and on
		require.Equal(t, starts+10, b.emu.Starts())
		away = false
		require.NoError(t, b.dialLong(t))
	})
}

func TestTheSIM(t *testing.T) {
	for _, c := range []struct {
		name  string
		given string
		modem func(*modems.Config)
		kind  transport.Kind
		pins  int
		dials int
	}{
		{"no PIN", "", func(c *modems.Config) { c.PIN = "1234" }, transport.Unauthorized, 0, 3},
		{"wrong PIN", "9876", func(c *modems.Config) { c.PIN = "1234" }, transport.Unauthorized, 1, 5},
		{"right PIN", "1234", func(c *modems.Config) { c.PIN = "1234" }, transport.Unknown, 2, 2},
		{"tries used", "1234", func(c *modems.Config) { c.PIN, c.Tries = "1234", 2 }, transport.Unauthorized, 0, 3},
		{"PUK", "1234", func(c *modems.Config) { c.PIN, c.Tries = "1234", -1 }, transport.Forbidden, 0, 3},
		{"no SIM", "1234", func(c *modems.Config) { c.NoSIM = true }, transport.NotFound, 0, 3},
	} {
		for _, family := range []modems.Family{modems.SIMCom, modems.Quectel} {
			t.Run(fmt.Sprintf("%s %d", c.name, family), func(t *testing.T) {
				in(t, func(t *testing.T) {
					s := setup{family: family, modem: c.modem, config: func(m *atmodem.Config) { m.PIN = c.given }}
					b := newBench(t, s)
					for range c.dials {
						err := b.dialLong(t)
						if c.kind == transport.Unknown {
							require.NoError(t, err)
						} else {
							require.ErrorIs(t, err, c.kind)
							require.NotContains(t, err.Error(), "1234")
							require.NotContains(t, err.Error(), "9876")
						}
						b.emu.Cut()
						time.Sleep(time.Minute)
					}
					require.Equal(t, c.pins, b.emu.PINs())
				})
			})
		}
	}
}

// The answer to a PIN may get lost. It is not sent again unless it proved right.
func TestAPINIsSentOnceThoughItsAnswerIsLost(t *testing.T) {
	for _, right := range []bool{false, true} {
		t.Run(fmt.Sprint(right), func(t *testing.T) {
			in(t, func(t *testing.T) {
				s := setup{family: modems.Quectel}
				s.config = func(m *atmodem.Config) { m.PIN = "1234" }
				s.modem = func(c *modems.Config) {
					c.PIN = "1234"
					c.Fault = func(n int, command string) modems.Action {
						if nameOf(command) == "AT+CPIN=" && n < 20 {
							if right {
								return modems.HideAnswer
							}
							return modems.Ignore
						}
						return modems.Obey
					}
				}
				b := newBench(t, s)
				require.ErrorIs(t, b.dialLong(t), transport.Timeout)
				if err := b.dialLong(t); right {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, b.dialLong(t), transport.Unauthorized)
				require.Zero(t, b.emu.PINs())
			})
		})
	}
}

func TestTheNetwork(t *testing.T) {
	for _, c := range []struct {
		name  string
		modem func(*modems.Config)
		kind  transport.Kind
		text  string
	}{
		{"denied", func(c *modems.Config) { c.Denied = 1 << 20 }, transport.Forbidden, "denies the SIM"},
		{"denied at first", func(c *modems.Config) { c.Denied = 20 }, transport.Unknown, ""},
		{"searching", func(c *modems.Config) { c.Searching = 1 << 20 }, transport.Network, "no network was found"},
		{"searching long", func(c *modems.Config) { c.Searching = 120 }, transport.Unknown, ""},
		{"another APN", func(c *modems.Config) { c.APN = "elsewhere" }, transport.Network, "check APN"},
		{"another password", func(c *modems.Config) { c.User, c.Secret = "board", "other" }, transport.Network,
			"Password"},
		{"the password", func(c *modems.Config) { c.User, c.Secret = "board", "hidden-word" }, transport.Unknown, ""},
	} {
		for _, k := range kinds {
			if k.secure {
				continue
			}
			t.Run(c.name+" "+k.name, func(t *testing.T) {
				in(t, func(t *testing.T) {
					s := k.setup
					s.modem = c.modem
					s.config = func(m *atmodem.Config) { m.User, m.Password = "board", "hidden-word" }
					b := newBench(t, s)
					err := b.dialLong(t)
					if c.kind == transport.Unknown {
						require.NoError(t, err)
						return
					}
					require.ErrorIs(t, err, c.kind)
					require.ErrorContains(t, err, c.text)
					require.NotContains(t, err.Error(), "hidden-word")
				})
			})
		}
	}
}

// The client tells what is wrong, and recovers when the network does.
func TestANetworkWithoutTime(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		s.modem = func(c *modems.Config) { c.Now = nil }
		b := newBench(t, s)
		b.writeCA(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		require.ErrorIs(t, b.modem.SetClock(ctx), transport.ClockUnset)
		if s.secure {
			require.ErrorIs(t, b.dialLong(t), transport.ClockUnset)
			require.Zero(t, b.emu.Dials())
			return
		}
		require.NoError(t, b.dialLong(t))
	})
}

// A digit of the time that noise changed does not set the clock.
func TestTwoAnswersMustAgreeOnTheTime(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		asked := 0
		s.modem = func(c *modems.Config) {
			c.Now = func() time.Time {
				if asked++; asked == 1 {
					return time.Now().AddDate(20, 0, 0)
				}
				return time.Now()
			}
		}
		b := newBench(t, s)
		b.begin(t, s)
		require.Equal(t, 3, asked)
	})
}

func TestTLSVerifies(t *testing.T) {
	for _, c := range []struct {
		name   string
		family modems.Family
		ca     bool
		host   string
		kind   transport.Kind
	}{
		{"right", modems.Quectel, true, "", transport.Unknown},
		{"right", modems.SIMCom, true, "", transport.Unknown},
		{"another CA", modems.Quectel, false, "", transport.Untrusted},
		{"another CA", modems.SIMCom, false, "", transport.Untrusted},
		{"another name", modems.Quectel, true, "elsewhere.example.test", transport.Untrusted},
		{"another name, not compared", modems.SIMCom, true, "elsewhere.example.test", transport.Unknown},
	} {
		t.Run(fmt.Sprintf("%s %d", c.name, c.family), func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBench(t, setup{family: c.family, secure: true})
				ca := b.hub.CAPEM()
				if !c.ca {
					ca = otherCA(t)
				}
				b.insist(t, func(ctx context.Context) error { return b.modem.WriteCA(ctx, ca) })
				if c.host == "" {
					c.host = b.hub.HostName()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				conn, err := b.modem.DialTo(ctx, c.host)
				if c.kind == transport.Unknown {
					require.NoError(t, err)
					require.NoError(t, conn.Close())
					return
				}
				require.ErrorIs(t, err, c.kind)
				require.ErrorIs(t, err, transport.ErrMaybeDamaged)
			})
		})
	}
}

func TestAMissingCAFileIsNamed(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		if !s.secure {
			return
		}
		b := newBench(t, s)
		err := b.dialLong(t)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "WriteCA")
	})
}
