package main

// The module tries numbers whose last four digits are in one word of the block, beside equal salts: then the words before are
// the same for thousands of numbers, and with them the first twelve rounds of SHA-256's sixty-four, and part of what the
// message schedule makes of the words. The last seven rounds need not be computed: from the hash that is looked for, without
// the message, follows what a is after round 56, because each round only shifts six of its eight words.
//
// Lanes are numbers. The memory, in words of 32 bits:
//
//	0…7     the state a…h after round 12, computed with 0 in place of word 12 of the block
//	8       what a is after round 56, counted from 0, of the hash that is looked for
//	16+i    the constant of round i from 13 to 56, and word i of the schedule where that is the same for all
//	80+i    the part of word i of the schedule that is the same for all, where another part is not
//	256…    words 12 of the blocks, in fours: find is given where they begin and end, in bytes
const (
	wordState  = 0
	wordTarget = 8
	wordRound  = 16
	wordPart   = 80

	varying   = 12 // the word of the block
	lastRound = 56
)

// The function's locals.
const (
	localAt, localEnd = 0, 1
	localState        = 2  // a…h
	localSchedule     = 10 // sixteen words of it
	localDiffer       = 26 // b ^ c
	localTemp         = 27
	locals            = 26 // of v128
)

// Module returns pow.wasm, which exports its memory and find(at, end). find returns the address of the first four words one of
// which may be the solution, or end.
func Module() []byte {
	body := join(
		code{1}, unsigned(locals), code{v128},
		block, loop,
		get(localAt), get(localEnd), i32GeU, brIf1,
		rounds(),
		get(localState), splat(wordTarget), equal, anyTrue, brIf1,
		get(localAt), number(16), i32Add, set(localAt),
		br0, end, end,
		get(localAt), end)
	return join(
		code("\x00asm\x01\x00\x00\x00"),
		section(1, code{1, 0x60, 2, i32, i32, 1, i32}), // one type: two numbers give one
		section(3, code{1, 0}),                         // one function of it
		section(5, code{1, 0, 1}),                      // one memory of one page
		section(7, code{2}, sized(code("memory")), code{2, 0}, sized(code("find")), code{0, 0}),
		section(10, code{1}, sized(body)))
}

// rounds computes a after the last round, for four numbers, in the local of a.
func rounds() code {
	// The state's words move from name to name each round; here the names move.
	var s [8]int
	for i := range s {
		s[i] = localState + i
	}
	word := func(i int) int { return localSchedule + i%16 }
	out := join(load(get(localAt)), set(word(varying)))
	for i := range s {
		out = join(out, splat(wordState+i))
		if i == 0 || i == 4 { // only these two take anything of the word in its own round
			out = join(out, get(word(varying)), plus)
		}
		out = join(out, set(s[i]))
	}
	out = join(out, with(xor, get(s[1]), get(s[2])), set(localDiffer))
	varies := map[int]bool{varying: true}
	for i := varying + 1; i <= lastRound; i++ {
		var parts []code
		same := false
		for _, of := range []struct {
			word int
			as   func(local int) code
		}{{i - 16, get}, {i - 15, sigma(7, 18, 3)}, {i - 7, get}, {i - 2, sigma(17, 19, 10)}} {
			switch {
			case i < 16:
			case varies[of.word]:
				parts = append(parts, of.as(word(of.word)))
			default:
				same = true
			}
		}
		if varies[i] = parts != nil; varies[i] {
			if same {
				parts = append(parts, splat(wordPart+i))
			}
			out = join(out, with(plus, parts[0], parts[1:]...), set(word(i)))
		}
		out = join(out, round(&s, i, varies[i], word(i)))
	}
	return join(out, get(s[0]), set(localState))
}

func round(s *[8]int, i int, varies bool, word int) code {
	a, b, c, d, e, f, g, h := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	t := with(plus, get(h), splat(wordRound+i), join(get(f), get(g), get(e), choose), rotated(6, 11, 25)(e))
	if varies {
		t = with(plus, t, get(word))
	}
	out := join(t, set(h))
	if i < lastRound {
		out = join(out, with(plus, get(d), get(h)), set(d))
	}
	// The majority of a, b and c is b where b and c are one, else a; a ^ b is the next round's b ^ c.
	out = join(out, with(xor, get(a), get(b)), set(localTemp),
		with(plus, get(h), rotated(2, 13, 22)(a), with(xor, get(b), with(and, get(localTemp), get(localDiffer)))), set(h),
		get(localTemp), set(localDiffer))
	*s = [8]int{h, a, b, c, d, e, f, g}
	return out
}

func shifted(op code, local, n int) code { return join(get(local), number(n), op) }

func turned(local, n int) code { return with(or, shifted(right, local, n), shifted(left, local, 32-n)) }

// rotated is the sum without carry of three rotations, sigma that of two and a shift.
func rotated(n, m, k int) func(local int) code {
	return func(local int) code { return with(xor, turned(local, n), turned(local, m), turned(local, k)) }
}

func sigma(n, m, k int) func(local int) code {
	return func(local int) code { return with(xor, turned(local, n), turned(local, m), shifted(right, local, k)) }
}
