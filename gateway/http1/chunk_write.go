package http1

const (
	ChunkHead = 6 // "ffff\r\n"
	ChunkTail = 2
	hexDigits = "0123456789abcdef"
)

// FrameChunk writes a chunk's size before the n bytes at buf[at:] and CRLF behind them, in place; there has to be
// room for both. n is at most 0xffff.
func FrameChunk(buf []byte, at, n int) []byte {
	i := at
	i--
	buf[i] = '\n'
	i--
	buf[i] = '\r'
	for v := n; ; v >>= 4 {
		i--
		buf[i] = hexDigits[v&15]
		if v < 16 {
			break
		}
	}
	buf[at+n], buf[at+n+1] = '\r', '\n'
	return buf[i : at+n+2]
}
