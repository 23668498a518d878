"""The built-in mixed sample: texts on which a quantized model is compared with its own fp32 reference.

An accuracy gate asks one question: does the smaller model still answer as the fp32 model does? It needs inputs, not
labels, so the sample is varied rather than annotated: lengths from one character to about 250 words, many domains,
languages and scripts, code, numbers, emoji, dirty text, and sentences full of names for token classification. A
near-duplicate pair differs in one negation, where rounding flips a label first.

All texts were written for this project; persons and companies in them are invented or used as plain examples, and no
statement in them is meant as a fact. Changing an entry changes what the gate measures: measured thresholds must then
be taken again.
"""

from __future__ import annotations

TEXTS: tuple[str, ...] = (
    # Single words and single characters.
    "No",
    "ok?",
    "7",
    "x",
    "Brilliant",
    "Reykjavík",
    # Short: fragments, questions, commands, headlines, chat.
    "Not bad at all.",
    "Could have been worse, I suppose.",
    "Where is the nearest pharmacy?",
    "Set an alarm for half past six tomorrow.",
    "Turn the kitchen lights down to thirty percent, please",
    "Mayor of Bristol quits after harbour bridge row",
    "Shares in Nordwind Energy slump as drought empties reservoirs",
    "omw, stuck behind a tractor lol",
    "u still up? need the wifi pw asap",
    "What is the capital of Mongolia, and how many people live there?",
    "Cancel my subscription and refund the last payment.",
    "Who on earth approved this?",
    "Dr. Amara Okafor joined Siemens in Munich on 3 March.",
    "Paris Geller flew from Paris to Washington to meet George Washington's biographer.",
    # A near-duplicate pair: one negation apart.
    "I would recommend this hotel to anyone travelling with small children.",
    "I would not recommend this hotel to anyone travelling with small children.",
    # Sentences and short reviews: positive, negative, ironic, neutral.
    "The blender crushed ice in ten seconds and was easy to rinse. Best kitchen purchase I "
    "have made this year! My only wish is a longer cable, because in our flat the socket is behind the fridge, but "
    "that is hardly the fault of the blender. The recipe booklet is in Dutch only.",
    "Arrived with a cracked lid, smelled of burnt rubber, and died on day three. Support never answered my mails. "
    "When I finally reached a Mr. Kowalczyk on the phone, he told me to buy the bigger model instead. I have seldom "
    "felt so little valued as a customer, and I have flown with budget airlines.",
    "Oh wonderful, another update that moves every button. Just what I was hoping for on a Monday "
    "morning. And how thoughtful to hide the search box under three menus, where it can rest. Truly, nobody "
    "understands users like the people at Pixelgarten.",
    "The jacket is grey, has four pockets and weighs about six hundred grams.",
    "Our guide Leila knew every alley of old Fez, and the mint tea on her uncle's roof was the highlight of the trip. "
    "The bus to Meknes, on the other hand, had no air and no brakes worth mentioning.",
    "The soup was lukewarm and the waiter rude, yet somehow the lemon tart almost made up for it. Almost.",
    "I expected to hate this film. Two hours later I was crying next to a stranger in row F.",
    "It does what the box says. Nothing more, nothing less.",
    "If patience is a virtue, then waiting ninety minutes for a cold pizza has made me a saint.",
    "Since version 4.2 the app no longer crashes when I rotate the tablet, but syncing with Outlook still fails.",
    "Kenya's Ruth Wanjiru won the Rotterdam Marathon in pouring rain, eleven seconds ahead of "
    "Marta Lindqvist of Sweden.",
    "Parliament in Wellington rejected the fisheries bill by two votes after Senator Hohepa changed sides at the last "
    "minute.",
    "Scientists at the University of Ljubljana report that the beetle's shell reflects infrared light, which may keep "
    "it cool in the desert. The finding, they write, rests on eleven specimens from Namibia, and whether it holds for "
    "related species is not yet known.",
    "The tenant shall be liable for any damage exceeding fair wear and tear, unless the landlord was notified in "
    "writing within fourteen days. Nothing in this clause limits any claim that cannot be excluded by law.",
    "Patient denies chest pain; mild dyspnoea on exertion, BP 142/91, started on 5 mg amlodipine once daily. "
    "ECG without acute changes. Echo requested at St. Columba's, to be reviewed by Dr. Nakamura in four weeks; earlier "
    "if ankles swell or dizziness occurs.",
    "The European Central Bank left rates unchanged, while Banco Miramar warned that bad loans in Lisbon had doubled.",
    "The minister for transport, Callum Reyes, insisted that the tunnel under the Tagus would open on time. Engineers "
    "who spoke to Radio Alfama on condition of anonymity laughed when they heard it. One of them, who has worked on "
    "the project since 2016, said that the date was possible, provided it was a different year.",
    "hi Yusuf, about tonight: Carla can't make it, so we're six. Table is booked at Osteria Brunello on Canal Street, "
    "7:45, under my name. could you pick up Grandma Rose on the way? she says she doesn't need a lift but she always "
    "says that. bring the charger, not the cake",
    "Neither the coach nor the captain was unhappy with the draw, although nobody would call it a good match.",
    "She said she loved the present. Her face said something else entirely.",
    "Apple juice, not Apple stock: that is what Jordan bought in Jordan with his last twenty dollars.",
    "They are all the same, those people, and nobody should have to sit next to them on the train.",
    "You absolute legend, Tomasz, thanks for fixing the build before the demo at Contoso!",
    "I am so angry that I could throw this printer out of the window, and I live on the ninth floor.",
    # Paragraphs of 60 to 150 words.
    "We stayed four nights at the Harbour Lodge in Galway in late October. The room was small but spotless, with a "
    "view over the fishing boats, and the owner, Mrs. Devlin, left warm scones outside our door every morning. The "
    "only trouble was the noise: a pub across the lane had live music until one, and the window did not shut "
    "properly. When we mentioned it, she moved us to a back room without any fuss and knocked a third off the bill. "
    "I have paid three times as much in Dublin for a worse bed and no scones. We will be back in spring.",
    "Do not buy these headphones for travelling. At home they sound lovely, with deep bass and clear voices, and I was "
    "ready to give them five stars. Then I took them on a flight from Toronto to Osaka. The noise cancelling hissed, "
    "the left cup kept cutting out whenever I turned my head, and the battery that should last thirty hours was empty "
    "somewhere above Alaska. The company, Auralux, offered me a voucher for ten percent off my next pair. I did not "
    "find that funny. Two stars, both of them for the bass.",
    "HELSINKI - The Finnish shipbuilder Merikoski said on Tuesday that it would cut 340 jobs at its yard in Turku, "
    "blaming rising steel prices and the loss of a ferry contract to a rival in Gdansk. Chief executive Paula Rantanen "
    "told reporters that the decision had been painful but could not be avoided. The metalworkers' union called it "
    "short-sighted and announced a two-day strike. Economy minister Eero Salmi promised to meet both sides before the "
    "end of the week, and said that the government was looking at a loan of up to 60 million euros.",
    "When a cell divides, it has to copy a very long thread of DNA without tangling it. Small motor proteins pull the "
    "thread into loops, a little like somebody gathering a rope hand over hand. Until recently it was unclear whether "
    "the loops grow from one side or from both. By fixing single molecules to a glass slide and staining them with a "
    "dye, a group in Delft could watch the loops form in real time. Most grew from one side only, but every few "
    "seconds the motor switched direction. Nobody knows yet what triggers the switch.",
    "To make the filling, soften two finely chopped onions in butter over a low heat for at least twenty minutes; they "
    "should turn golden, not brown. Stir in 300 g of mushrooms, a clove of garlic and a pinch of nutmeg, and cook "
    "until the pan is almost dry. Let it cool, then fold in 150 g of ricotta and one beaten egg. Roll out the pastry, "
    "line a 24 cm tin, and bake it blind at 190 °C for 15 min. Fill it, scatter over some thyme, and return it to the "
    "oven until the middle no longer wobbles. Serve with a sharp green salad.",
    "Manuel Ferreira scored twice in the last ten minutes as Atlético Paranhos came from behind to beat FC Lindenau "
    "3-2 in the second leg of the quarter-final in Leipzig. The home side had looked safe after an early penalty and "
    "a fine header by Jonas Krüger just before the break. But the goalkeeper, Ibrahim Diallo, misjudged a long free "
    "kick, and from then on only one team believed. Coach Helga Brandt refused to blame him. The Portuguese club now "
    "plays either Celtic or Galatasaray in April.",
    "Subject: Invoice 2024-0817 still open\n\nDear Ms. Takahashi,\n\nour records show that invoice 2024-0817 of 17 "
    "August, for EUR 1,249.50, has not been paid yet. If the transfer is already on its way, please ignore this "
    "message. Otherwise we kindly ask you to settle the amount by Friday, 27 September. Should anything on the invoice "
    "be unclear, simply reply to this mail or call Priya in our Antwerp office, extension 41.\n\nKind regards,\n"
    "Joost van der Meer\nAccounts Receivable, Scheldt Logistics NV",
    "The court held that a buyer who discovers a defect after delivery must say so within a reasonable time, but that "
    "the seller cannot rely on the delay if it knew of the defect all along. In the present case Halloran & Sons had "
    "received two complaints about the same boiler before it was sold to Ms. Petrenko. It followed that her claim was "
    "not out of time. Judge Achebe, dissenting, would have sent the matter back to the lower court in Leeds, because "
    "the date on which the company learned of the second complaint had never been established.",
    "ok so here's what happened at the vet today. mango (the orange one, not my sister's cat) has been limping since "
    "sunday, so I took an early lunch and drove over to Dr. Boyle. mango screamed the whole way. people at red lights "
    "were STARING. we get there, two hundred dollars of x-rays later, and it turns out there's nothing wrong with "
    "him?? he had a grain of cat litter stuck between his toes. she pulled it out with tweezers and he walked off like "
    "a king. I love him but I am never trusting that face again",
    "Inflation in the euro area eased to 2.4% in November, from 2.9% a month earlier, mainly because petrol and gas "
    "became cheaper. Prices of services, which depend more on wages, kept rising at about the same pace. Analysts at "
    "Brookfield Hart in London had expected a smaller fall and now see a first rate cut in spring. Others are more "
    "careful. Ingrid Solheim, who teaches economics in Bergen, points out that a cold winter or trouble in the Suez "
    "Canal could push energy prices up again within weeks, and that one good month does not make a trend.",
    # Two long texts, about 250 words each.
    "The library in Varnholm stood empty for eleven years before anybody thought of saving it. It had been built in "
    "1908 with money from Axel Thorsen, a timber merchant who could barely read and was ashamed of it all his life. "
    "He asked the architect, Ellen Brask of Gothenburg, for tall windows, warm pipes under the benches, and a door "
    "without a step, so that the dock workers would not feel they were climbing up to something. For three "
    "generations the town used it for everything: weddings, elections, chess, even a field hospital during the "
    "floods of 1951. Then the county opened a new branch next to the shopping centre, and the old house was locked. "
    "Pigeons moved in. In 2012 the council put it up for sale, and a hotel chain from Hamburg offered two million "
    "for the plot. It was a retired bus driver, Birgitta Holm, who stopped it. She did not make speeches. She simply "
    "sat in front of the locked door, every Saturday, with a thermos and a box of paperbacks, and lent "
    "them to whoever came by. First there were five people, later eighty. A television crew from Oslo turned up by "
    "accident, having lost its way to a ski race. By the following spring the hotel chain had withdrawn, the council "
    "had changed its mind, and volunteers were scraping paint from the window frames. The house opened again last "
    "June. The first book to be borrowed was a manual for diesel engines. Holm says that Thorsen would have liked "
    "that, and I believe she is right.",
    "I have now used the Kestrel 14 laptop as my only computer for eight months, which I think is long enough to be "
    "fair to it. Let me begin with what is good, because a lot is. The keyboard is the best I have typed on since my "
    "old Ferrous T40: quiet, deep, and with arrow keys of a sensible size. The screen is bright enough to work on a "
    "balcony in Seville in July. Linux runs out of the box, including sleep and the fingerprint reader, and a full "
    "build of our product takes six minutes instead of seventeen. Now for the rest. The fan is not loud, but it has a "
    "thin whistle that you cannot stop hearing once you have noticed it. The hinge came loose in week ten. The repair "
    "was free, and yet I was without a machine for nineteen days, because the service centre in Brno was waiting for "
    "one screw. Battery life is advertised as fifteen hours; I have never seen more than nine, and with video calls it "
    "is closer to five. The webcam makes everybody look as if they had the flu. And there is the price: at 2,100 "
    "dollars, with only 16 GB of memory soldered to the board, it costs more than competitors that can be upgraded. "
    "Would I buy it again? A month ago I would have said no without thinking. Then my colleague Farid lent me his "
    "newer, thinner, prettier machine for an afternoon, and after an hour I wanted my keyboard back. So yes, probably, "
    "but I would wait for a discount.",
    # Other languages and scripts.
    "Der Zug nach Graz hatte wieder vierzig Minuten Verspätung, aber die Schaffnerin Frau Hofer war so freundlich, "
    "dass man ihr nicht böse sein konnte. In Bruck an der Mur verteilte sie sogar Wasser und erzählte den Kindern, "
    "warum die Strecke über den Semmering so viele Kurven hat. Die Verbindung nach Ljubljana war trotzdem weg.",
    "Das Gerät ist leider nicht wasserdicht, obwohl es in der Anzeige der Firma Lindner stand. Ich möchte mein Geld "
    "zurück!",
    "Franchement, je ne m'attendais pas à un accueil aussi chaleureux dans un si petit restaurant de Lyon. Le chef, "
    "Monsieur Besson, est venu nous saluer. Seul bémol : le dessert, trop sucré à mon goût, et une addition un peu "
    "salée pour deux personnes. Nous y retournerons quand même avant Noël.",
    "El portátil se calienta demasiado y la batería apenas dura tres horas; no lo volvería a comprar. "
    "En la tienda de Zaragoza me dijeron que era normal, que lo apagara por las noches y que tuviera paciencia. "
    "Paciencia ya no me queda.",
    "A prefeita de Recife, Joana Teixeira, prometeu abrir doze novas creches até o fim do ano.",
    "Il professor Galli ha presentato a Bologna un nuovo metodo per datare le ceramiche etrusche.",
    "De fietstocht langs de Waal was prachtig, al regende het vanaf Nijmegen onafgebroken.",
    "Nie polecam tego sklepu: paczka przyszła po trzech tygodniach, a pani Zielińska z Krakowa nawet nie przeprosiła.",
    "Kargo iki günde geldi, ürün tam da anlatıldığı gibi. İzmir'deki satıcıya çok teşekkür ederim.",
    "Вчера Анна Соколова вернулась из Новосибирска и сказала, что выставка её совсем не впечатлила. "
    "По её словам, картины висели слишком высоко, света почти не было, а экскурсовод всё время говорил по телефону. "
    "Зато музей железной дороги ей очень понравился.",
    "Нова бібліотека у Львові відкриється восени, повідомив директор Остап Гнатюк.",
    "Το ξενοδοχείο στα Χανιά ήταν καθαρό και ήσυχο, όμως το πρωινό ήταν απογοητευτικό.",
    "وصلت الطلبية متأخرة أسبوعين، لكن جودة القماش ممتازة وسأشتري من المتجر مرة أخرى.",
    "השירות במסעדה בחיפה היה איטי מאוד, אבל האוכל היה טעים.",
    "मुझे यह किताब बहुत पसंद आई, लेकिन अंत थोड़ा अधूरा लगा।",
    "ร้านนี้อาหารอร่อยมาก พนักงานบริการดี แต่ที่จอดรถหายาก",
    "昨日、京都駅の近くで田中さんと新しいラーメン屋に行きましたが、正直あまりおいしくなかったです。"
    "スープがぬるくて、麺ものびていました。でも店員さんはとても親切だったので、もう一度だけ行ってみるつもりです。",
    "这家位于成都的小店价格不贵，服务员小李很热情，可惜排队要等一个多小时。"
    "我们点了两碗面和一份凉菜，味道很地道，就是有点咸。下次会选工作日再来，周末还是算了吧。",
    "부산에서 산 우산이 하루 만에 망가졌어요. 다시는 여기서 안 살 거예요.",
    "Chuyến bay từ Đà Nẵng bị hoãn năm tiếng mà không ai giải thích lý do.",
    "Pak Hendra dari Surabaya bilang kopinya enak sekali, tetapi tempatnya terlalu ramai.",
    "Daktari Mwakasege alisema kwamba mgonjwa atarudi nyumbani Mombasa kesho asubuhi.",
    # Code, data, logs, addresses, numbers.
    "def mean(values: list[float]) -> float:\n    if not values:\n        raise ValueError('no values')\n"
    "    return sum(values) / len(values)",
    "SELECT c.name, COUNT(*) AS orders FROM customers c LEFT JOIN orders o ON o.customer_id = c.id WHERE c.city = "
    "'Porto' GROUP BY c.name HAVING COUNT(*) > 3;",
    '{"id": 48213, "user": {"name": "Mei-Ling Zhou", "vip": false}, "tags": ["late", "damaged"], "total": 19.9}',
    'for f in *.log; do gzip -9 "$f" && mv "$f.gz" /var/archive/ || echo "failed: $f" >&2; done',
    '<div class="card"><h2>Autumn sale</h2><p>Up to <b>40%</b> off&nbsp;boots</p><img src="a.png" alt=""></div>',
    "2024-11-05T08:14:59.301Z ERROR [worker-7] payment.gateway: timeout after 30000 ms (order=A-99172, retry 3/3)",
    "See https://docs.example.org/v2/setup?lang=en#proxy or write to help@example.org before 17:00 CET.",
    "| 2023-Q4 | Kyiv | 1,204 units | $48,160.00 | -3.5 % |",
    "Let f(x) = 3x^2 - 2x + 1; then f'(x) = 6x - 2, so f has its minimum at x = 1/3, where f(1/3) = 2/3.",
    "Pay £2,350.75 (about ¥445,000) by 01/02/2025; 12.5 kg at 4 °C, 3/4 in. pipe, 60 mph = 96.6 km/h, tel. +44 20 7946 "
    "0018",
    # Emoji.
    "😂😂😂",
    "Just landed in Lisbon 🇵🇹✈️ can't wait to see Inês and eat ALL the pastéis 🥹❤️",
    "great, rain again on match day 🙃☔ thx weather app 👏👏",
    # Dirty text.
    "WORST. AIRLINE. EVER!!!!! LOST MY BAG IN DALLAS AND NOBODY CARES??!!",
    "teh pakage arived yestarday , its realy nise but teh colour is diferent form teh pitcure",
    "soooo   good  ....  \t best\tburger in\n\n\nAustin   imho   ",
    "Tom &amp; Jerry&#39;s Diner &lt;3 &quot;best pancakes in Ohio&quot; &mdash; 10/10",
    "y0u h4v3 w0n a fr33 ph0ne!!1 cl1ck h3re n0w >>> bit.example/x9Qz",
    "Thisphoneisgreatbutthecameraisbad.IboughtitinMumbailastweek.",
    "A B C a b c — “quoted” ‘text’… naïve café, Zürich №5 ½ ™ ﬁne\u00a0print\u200b and e\u0301 twice",
)
"""The texts, for every task that takes one text per row; also the texts of the zero-shot and NER comparison."""

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("Who founded the bakery?", "The bakery on Mill Street was founded by Odile Marchand in 1974."),
    ("When was the bakery founded?", "The bakery on Mill Street was founded by Odile Marchand in 1974."),
    ("Where does the night train stop?", "The night train from Vienna stops in Linz, Passau and Nuremberg."),
    ("How much does the ticket cost?", "A day ticket costs 14.50 euros, and children under six travel free."),
    (
        "What did the engineers replace?",
        "After the test in Nagoya failed, the engineers replaced the fuel valve and left the pump as it was.",
    ),
    (
        "Why was the match abandoned?",
        "The match between Rosario and Mendoza was abandoned in the 63rd minute because of heavy fog. The crowd of "
        "12,000 left quietly, and the rest will be played on Thursday.",
    ),
    (
        "Who did not sign the letter?",
        "The letter was signed by Adams, Novak and Ito. Fernandez, who had written most of it, did not sign.",
    ),
    (
        "What is the maximum file size?",
        "Uploads are limited to 25 MB per file and 2 GB per project. Larger files can be sent with the command-line "
        "client, which splits them into parts.",
    ),
    (
        "Which drug was stopped?",
        "On admission the patient was taking metformin and ramipril. Ramipril was stopped because of a dry cough, and "
        "losartan was begun the next day.",
    ),
    (
        "How long is the notice period?",
        "Either party may end this agreement in writing with a notice period of three months to the end of a quarter. "
        "The right to end it without notice for good cause is not affected.",
    ),
    (
        "Which bird was seen for the first time?",
        "Volunteers on the island of Texel counted 148 species this spring. A pallid harrier was seen for the first "
        "time, while the number of lapwings fell again.",
    ),
    (
        "What port does the server listen on by default?",
        "Start the server with `serve --config app.toml`. By default it listens on port 8642 and writes its log to "
        "stderr; set PORT to change the first and LOG_FILE to change the second.",
    ),
    (
        "Who became chair of the committee?",
        "In the vote on Monday, Thandiwe Mokoena beat Lars Friberg by 31 to 28 and became chair of the budget "
        "committee. Friberg, who had led it for nine years, will stay on as a member. The deputy chair, Rosa Iglesias, "
        "was confirmed without a contest.",
    ),
    (
        "What destroyed the first lighthouse?",
        "Three lighthouses have stood on Gannet Point. The first, a wooden tower lit by whale oil, was destroyed by a "
        "storm in 1811. The second burned down after a keeper fell asleep. The present one, made of granite from "
        "Aberdeen, was finished in 1869 and has been run from the mainland since 1988. Visitors may climb its 172 "
        "steps on Sundays, provided that the wind does not exceed 50 km/h.",
    ),
    (
        "How many steps does the tower have?",
        "Three lighthouses have stood on Gannet Point. The first, a wooden tower lit by whale oil, was destroyed by a "
        "storm in 1811. The second burned down after a keeper fell asleep. The present one, made of granite from "
        "Aberdeen, was finished in 1869 and has been run from the mainland since 1988. Visitors may climb its 172 "
        "steps on Sundays, provided that the wind does not exceed 50 km/h.",
    ),
    (
        "What does the company plan to build in Tampere?",
        "Battery maker Voltaris said it would invest 800 million dollars over five years. About half of the money goes "
        "into a recycling plant in Tampere, where lithium and cobalt are to be recovered from old car batteries. The "
        "rest is meant for the existing factory near Cork, which will get a second production line and some 200 new "
        "jobs. Chief financial officer Deepa Raman said that no new shares would be issued; the company would instead "
        "borrow from a group of banks led by Crédit Rhénan. The price of its shares rose by four percent in the "
        "morning, then gave up most of the gain after the rival firm Celldrive presented a cheaper cell at a trade "
        "fair in Seoul.",
    ),
    (
        "Who leads the group of banks?",
        "Battery maker Voltaris said it would invest 800 million dollars over five years. About half of the money goes "
        "into a recycling plant in Tampere. The rest is meant for the existing factory near Cork. Chief financial "
        "officer Deepa Raman said that no new shares would be issued; the company would instead borrow from a group of "
        "banks led by Crédit Rhénan.",
    ),
    (
        "what time does it open on saturday",
        "OPENING HOURS\nMon-Fri\t8:00-18:30\nSat\t9:15-13:00\nSun\tclosed\n\nThe pool closes 20 min earlier.",
    ),
    (
        "What colour was the door that Nadia painted?",
        "Nadia painted the shed blue and its door yellow. Her brother, who cannot tell green from red, did the fence, "
        "and it is better not to talk about the fence.",
    ),
    (
        "Wo wurde die Brücke gebaut?",
        "Die alte Steinbrücke wurde 1786 in Wasserfurt gebaut und nach dem Hochwasser von 1899 um zwei Bögen verkürzt.",
    ),
    (
        "Qui a remporté le prix ?",
        "Le prix du jury a été remporté par la réalisatrice Salomé Vautrin pour un film tourné entièrement à Dakar.",
    ),
    (
        "¿Cuántos habitantes tiene el pueblo?",
        "El pueblo de Peñablanca tiene 412 habitantes en invierno y casi dos mil en agosto, cuando vuelven las "
        "familias.",
    ),
    ("Где родился композитор?", "Композитор Лев Арсеньев родился в Казани, а учился в Праге и Лейпциге."),
    ("会议在哪里举行？", "今年的会议将于十月十二日在杭州举行，预计有三百名学者参加。"),
)
"""(question, context) pairs for extractive question answering; every answer is a span of its context."""

LABELS: tuple[str, ...] = ("travel", "technology", "politics", "sports", "food")
"""Candidate labels for zero-shot classification of ``TEXTS``."""
