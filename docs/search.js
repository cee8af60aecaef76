/* The site's search: ranks sections by BM25 of the section and of its best passage, and by how well its title, or a
   question that asked.toml has for it, agrees with what was asked. Sphinx's own finds the pages that have every word. */
Search.loaded = new Promise((loaded, failed) => {
  // a script and no fetch, which a browser refuses for a site that is opened from a folder
  const script = Object.assign(document.createElement("script"), { src: "_static/sections.js" });
  script.onload = () => loaded(Search.sections.map(Search.read));
  script.onerror = failed;
  document.head.append(script);
});
Search.stemmer = new Stemmer();
Search.stems = new Map();
Search.idle = new Set("can will may use used using get need want way possible happen please able work many".split(" "));
Search.words = (text) =>
  splitQuery(text.replace(/([a-z])([A-Z][a-z])/g, "$1$2 $1 $2").toLowerCase()
    .replace(/onnx runtime/g, "onnxruntime").replace(/c\+\+/g, "cpp").replace(/c#/g, "csharp"))
    .filter((word) => !stopwords.has(word) && !Search.idle.has(word))
    .map((word) => {
      if (!Search.stems.has(word)) Search.stems.set(word, Search.stemmer.stemWord(word));
      return Search.stems.get(word);
    });
Search.read = ({ title, of, texts, asked, ...place }) => {
  const [own, above] = [Search.words(title), Search.words(of)];
  const passages = texts.map(Search.words), questions = asked.map(Search.words);
  const head = (times) => [...Array(2 * times).fill(own).flat(), ...Array(times).fill(above).flat()];
  const whole = [...passages.flat(), ...head(2), ...questions.flat(), ...questions.flat()];
  return {
    ...place, title: of === title ? of : `${of} > ${title}`, named: [own, ...questions].map((words) => new Set(words)),
    whole, known: new Set(whole), passages: passages.map((words) => [...words, ...head(1)]),
  };
};
Search.query = async (query) => {
  const places = await Search.loaded;
  const asked = [...new Set(Search.words(query))];
  const weights = asked.map((word) => {
    const having = places.filter(({ known }) => known.has(word)).length;
    return Math.log(1 + (places.length - having + 0.5) / (having + 0.5));
  });
  const weigh = (has) => asked.reduce((sum, word, at) => sum + (has(word) ? weights[at] : 0), 0);
  const all = weigh(() => true) || 1;
  const mean = (lists) => lists.reduce((sum, { length }) => sum + length, 0) / lists.length;
  const lengths = [mean(places.map(({ whole }) => whole)), mean(places.flatMap(({ passages }) => passages))];
  const bm25 = (words, length, share) => asked.reduce((sum, word, at) => {
    const times = words.reduce((count, other) => count + (other === word), 0);
    return sum + (weights[at] * times * 2.2) / (times + 1.2 * (1 - share + (share * words.length) / length));
  }, 0);
  const agreement = (words) =>
    (weigh((word) => words.has(word)) / all) * (asked.filter((word) => words.has(word)).length / (words.size || 1));
  const score = ({ page, whole, known, passages, named }) => {
    const covered = weigh((word) => known.has(word)) / all;
    if (!covered) return 0;
    const history = /^CHANGELOG|decisions/.test(page) ? 0.6 : /cards$|benchmark$/.test(page) ? 0.8 : 1;
    const best = Math.max(0, ...passages.map((words) => bm25(words, lengths[1], 0.4)));
    const fit = Math.max(...named.map(agreement));
    return history * (1 + fit) * (bm25(whole, lengths[0], 0.6) + best) * Math.sqrt(covered);
  };
  const scored = places.map((place) => ({ ...place, score: score(place) })).filter(({ score }) => score > 0);
  const best = scored.sort((a, b) => b.score - a.score).slice(0, 10);
  const items = best.map(({ page, title, id, score }) => [page, title, id && `#${id}`, null, score, page, "text"]);
  _removeChildren(document.getElementById("search-progress"));
  for (const item of items) _displayItem(item, new Set(asked), new Set(splitQuery(query.toLowerCase())));
  Search.stopPulse();
  Search.title.innerText = "Search Results";
  Search.status.innerText = items.length ? "The sections that fit best." : "No page has any of these words.";
};
