// The sentences of the page in the visitor's language. words.go makes the same sentences on the server; a test compares both.
function words(text, lang) {
  const {ceil, floor} = Math;
  const plural = new Intl.PluralRules(lang);
  const digits = new Intl.NumberFormat(lang);
  const number = n => digits.format(n);

  // say replaces the {names} in a text; n chooses the plural form.
  const say = (key, values, n) => {
    const found = text[key];
    const form = found.other ? found[plural.select(n)] || found.other : found;
    return form.replace(/{(\w+)}/g, (all, name) => values[name]);
  };
  const count = (key, n) => say(key, {n: number(n)}, n);

  // wait returns the words for a range of seconds, rounded to minutes; from 10 minutes on to 5 minutes, from 90 on to half hours.
  const wait = (low, high) => {
    if (high <= 60) return text.soon;
    let unit = "minutes", a = floor(low / 60), b = ceil(high / 60);
    if (a >= 10) a -= a % 5;
    if (b > 10) b = ceil(b / 5) * 5;
    if (b > 90) {
      unit = "hours";
      a = floor(low / 1800) / 2;
      b = ceil(high / 1800) / 2;
      if (a >= 24) return text.long;
    }
    const t = count(unit, b);
    return a < 1 ? say("upto", {t}) : a < b ? say("range", {a: number(a), t}) : say("about", {t});
  };

  return {say, number, count, wait};
}
