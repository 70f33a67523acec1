package http1

import "strconv"

// Refusal is why a request is refused: a value, not an error. Code is one of the Code constants. Detail is a sentence
// that never repeats bytes of the request. With Close the connection must not be used again.
type Refusal struct {
	Status int
	Code   string
	Detail string
	Close  bool
}

// The codes of refusals.
const (
	CodeRequestLine = "request_line"       // 400: malformed request line
	CodeMethod      = "method_not_allowed" // 405: CONNECT, TRACE
	CodeVersion     = "http_version"       // 505: neither HTTP/1.0 nor HTTP/1.1
	CodeTarget      = "request_target"     // 400: a target that two parsers could read differently
	CodeTargetLong  = "target_too_long"    // 414
	CodeHeader      = "header_field"       // 400: malformed header line
	CodeHeaderLarge = "header_too_large"   // 431
	CodeNames       = "too_many_names"     // 400: Connection or Trailer lists more than maxListed elements
	CodeHost        = "host"               // 400: missing, repeated or malformed Host
	CodeFraming     = "framing"            // 400: Content-Length, Transfer-Encoding, or chunks that arrived with the header
	CodeCoding      = "transfer_coding"    // 501: a transfer coding that is known but not implemented
	CodeExpect      = "expectation"        // 417
)

// String returns the status, the code and the detail.
func (r *Refusal) String() string { return strconv.Itoa(r.Status) + " " + r.Code + ": " + r.Detail }

// NewRefusal returns a refusal that closes the connection.
func NewRefusal(status int, code, detail string) *Refusal {
	return &Refusal{Status: status, Code: code, Detail: detail, Close: true}
}

// Refusals carry no data of the request, so one of each is enough.
var (
	refuseLine            = NewRefusal(400, CodeRequestLine, "The request line is malformed.")
	refuseBareLF          = NewRefusal(400, CodeHeader, "A line ends with LF instead of CRLF.")
	refuseMethod          = NewRefusal(405, CodeMethod, "This method is not served here.")
	refuseVersion         = NewRefusal(505, CodeVersion, "Only HTTP/1.0 and HTTP/1.1 are served here.")
	refuseTarget          = NewRefusal(400, CodeTarget, "The request target is malformed.")
	refuseAuthority       = NewRefusal(400, CodeTarget, "The target's authority differs from Host.")
	refuseTargetLong      = NewRefusal(414, CodeTargetLong, "The request target is too long.")
	refuseFold            = NewRefusal(400, CodeHeader, "A header line is folded.")
	refuseName            = NewRefusal(400, CodeHeader, "A header name is not a token.")
	refuseValue           = NewRefusal(400, CodeHeader, "A header value holds a control character.")
	refuseImitation       = NewRefusal(400, CodeHeader, "A header name can be taken for a reserved one.")
	refuseTrailer         = NewRefusal(400, CodeHeader, "Trailer names a field that may not follow a body.")
	refuseConnectionNames = NewRefusal(400, CodeNames, "Connection lists more than 32 names.")
	refuseTrailerNames    = NewRefusal(400, CodeNames, "Trailer lists more than 32 names.")
	RefuseHeaderLarge     = NewRefusal(431, CodeHeaderLarge, "The request header is too large.")
	refuseHeaderCount     = NewRefusal(431, CodeHeaderLarge, "The request has too many header lines.")
	refuseNoHost          = NewRefusal(400, CodeHost, "The request has no Host.")
	refuseTwoHosts        = NewRefusal(400, CodeHost, "The request has more than one Host.")
	refuseHost            = NewRefusal(400, CodeHost, "Host is malformed.")
	refuseLength          = NewRefusal(400, CodeFraming, "Content-Length is malformed.")
	refuseTwoLengths      = NewRefusal(400, CodeFraming, "The request has more than one Content-Length.")
	refuseBoth            = NewRefusal(400, CodeFraming, "The request has both Content-Length and Transfer-Encoding.")
	refuseCoding          = NewRefusal(400, CodeFraming, "Transfer-Encoding is not exactly chunked.")
	refuseCodingKnown     = NewRefusal(501, CodeCoding, "The only transfer coding served here is chunked.")
	RefuseChunks          = NewRefusal(400, CodeFraming, "The chunks of the body are malformed.")
	refuseCoding10        = NewRefusal(400, CodeFraming, "HTTP/1.0 has no Transfer-Encoding.")
	refuseExpect          = NewRefusal(417, CodeExpect, "The only expectation served here is 100-continue.")
)
