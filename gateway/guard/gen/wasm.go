package main

import "encoding/binary"

// code is WebAssembly that leaves one value on the stack, or does something and leaves none.
type code []byte

func join(parts ...code) code {
	var out code
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// unsigned and signed are LEB128, as all numbers in a module are.
func unsigned(n int) code { return binary.AppendUvarint(nil, uint64(n)) }

func signed(n int) code {
	var out code
	for {
		b := byte(n & 0x7f)
		if n >>= 7; n == 0 && b < 0x40 || n == -1 && b >= 0x40 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

// sized is a vector of bytes, or a section's content: its length stands before it.
func sized(parts ...code) code {
	all := join(parts...)
	return join(unsigned(len(all)), all)
}

func section(id byte, parts ...code) code { return join(code{id}, sized(parts...)) }

// The types of values.
const (
	i32  = 0x7f
	v128 = 0x7b
)

// Instructions: https://webassembly.github.io/spec/core/binary/instructions.html
var (
	block   = code{0x02, 0x40}
	loop    = code{0x03, 0x40}
	end     = code{0x0b}
	brIf1   = code{0x0d, 1}
	br0     = code{0x0c, 0}
	i32GeU  = code{0x4f}
	i32Add  = code{0x6a}
	anyTrue = simd(0x53)
	equal   = simd(0x37) // i32x4.eq
	plus    = simd(0xae) // i32x4.add
	left    = simd(0xab) // i32x4.shl
	right   = simd(0xad) // i32x4.shr_u
	and     = simd(0x4e)
	or      = simd(0x50)
	xor     = simd(0x51)
	choose  = simd(0x52) // v128.bitselect
)

func simd(op int) code { return join(code{0xfd}, unsigned(op)) }

func number(n int) code      { return join(code{0x41}, signed(n)) }
func get(local int) code     { return join(code{0x20}, unsigned(local)) }
func set(local int) code     { return join(code{0x21}, unsigned(local)) }
func load(address code) code { return join(address, simd(0x00), code{2, 0}) } // v128.load

// splat is a word of the memory in all four lanes.
func splat(word int) code { return join(number(0), simd(0x09), code{2}, unsigned(word*4)) }

// with applies an instruction to what came before it, from left to right: with(plus, a, b, c) is a + b + c.
func with(op, first code, more ...code) code {
	out := join(first)
	for _, m := range more {
		out = join(out, m, op)
	}
	return out
}
