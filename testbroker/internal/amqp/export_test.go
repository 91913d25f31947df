package amqp

// Buffer returns the size of the buffer for output.
func (c *Conn) Buffer() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cap(c.out)
}
