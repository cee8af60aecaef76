/* The site's search: ranks sections by BM25, and by how well title and question agree. Sphinx's own finds the pages
   that have every word. */
Search.loaded = new Promise((loaded, failed) => {
  // a script and no fetch, which a browser refuses for a site that is opened from a folder
  const script = Object.assign(document.createElement("script"), { src: "_static/sections.js" });
  script.onload = () => loaded(Search.sections);
  script.onerror = failed;
  document.head.append(script);
});
Search.query = async (query) => {
  const sections = await Search.loaded;
  const stemmer = new Stemmer(), stems = new Map();
  const words = (text) =>
    splitQuery(text.toLowerCase().replace(/onnx runtime/g, "onnxruntime"))
      .filter((word) => !stopwords.has(word))
      .map((word) => stems.get(word) ?? stems.set(word, stemmer.stemWord(word)).get(word));
  const asked = new Set(words(query));
  const places = sections.map(({ page, of, title, text, ...place }) => {
    const all = words(`${`${title} `.repeat(4)} ${of} ${of} ${text}`);
    const times = [...asked].map((word) => all.filter((other) => other === word).length);
    const own = new Set(words(title)), named = [...asked].map((word) => own.has(word));
    const share = named.filter((is) => is).length / (own.size || 1);  // of the title that is in the question
    return { ...place, page, title: of === title ? of : `${of} > ${title}`, length: all.length, times, named, share };
  });
  const mean = places.reduce((sum, { length }) => sum + length, 0) / places.length;
  const weights = [...asked].map((_, at) => {
    const having = places.filter(({ times }) => times[at]).length;
    return Math.log(1 + (places.length - having + 0.5) / (having + 0.5));
  });
  const all = weights.reduce((sum, weight) => sum + weight, 0);
  for (const place of places) {
    const room = 0.4 + (0.6 * place.length) / mean;
    const parts = place.times.map((times, at) => (weights[at] * times * 2.2) / (times + 1.2 * room));
    const history = /^CHANGELOG|decisions/.test(place.page) ? 0.6 : 1;
    const fit = place.share * place.named.reduce((sum, is, at) => sum + is * weights[at], 0) / all;
    place.score = history * (1 + fit / 2) * parts.reduce((sum, part) => sum + part, 0);
  }
  const best = places.filter(({ score }) => score > 0).sort((a, b) => b.score - a.score).slice(0, 10);
  const items = best.map(({ page, title, id, score }) => [page, title, id && `#${id}`, null, score, page, "text"]);
  _removeChildren(document.getElementById("search-progress"));
  for (const item of items) _displayItem(item, asked, new Set(splitQuery(query.toLowerCase())));
  Search.stopPulse();
  Search.title.innerText = "Search Results";
  Search.status.innerText = items.length ? "The sections that fit best." : "No page has any of these words.";
};
